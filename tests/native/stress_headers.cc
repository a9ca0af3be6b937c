// The shared headers under real threads: page cache, and queue pair with a controller of a few lines.
#include <cstring>
#include <memory>

#include "bam/queue_pair.h"
#include "stress_cache.h"

namespace stress {
namespace {

using P = bam::HostPlatform;

// Everything of one queue pair, and a slot of bytes for each command id.
struct QueueMemory {
  explicit QueueMemory(uint32_t depth)
      : sq(depth), cq(depth), free_cids(depth), words(1), owners(depth), bytes(depth),
        queue{sq.data(), cq.data(), &doorbells[0], &doorbells[1], words.data(), free_cids.data(), depth, 1} {
    bam::init_queue_pair(queue);
  }
  std::vector<bam::Sqe> sq;
  std::vector<bam::CqeWords> cq;
  std::vector<uint16_t> free_cids;
  std::vector<bam::QueueWords> words;
  std::vector<uint64_t> owners;  // of each command id: the command's number, plain
  std::vector<uint64_t> bytes;   // what was read for it, plain
  uint32_t doorbells[2] = {};
  bam::QueuePairState queue;
};

uint64_t bytes_for(uint64_t command) { return bam::mix64(command); }

// Answers until `count` commands are done; every other time the newest of those it holds first.
void answer(QueueMemory& memory, uint64_t count, Checks& checks) {
  bam::ControllerCursor cursor{};
  std::vector<bam::Sqe> held;
  while (cursor.posted < count) {
    uint32_t waiting = bam::commands_waiting<P>(memory.queue, cursor);
    checks.expect(waiting < memory.queue.depth, "an invalid doorbell");
    for (; waiting != 0; waiting--) held.push_back(bam::fetch_command(memory.queue, cursor));
    if (held.empty()) {
      P::pause();
      continue;
    }
    if (cursor.posted % 2 == 0) std::swap(held.front(), held.back());
    bam::Sqe sqe = held.back();
    held.pop_back();
    checks.expect(bam::can_post<P>(memory.queue, cursor), "no room for a completion");
    uint64_t command = bam::start_block(sqe);
    memory.bytes[sqe.cid] = bytes_for(command);
    bam::post_completion<P>(memory.queue, cursor,
                            {sqe.cid, bam::status_field(bam::Status::success), static_cast<uint32_t>(command), 0});
  }
}

struct Submission {
  QueueMemory& memory;
  std::vector<std::atomic<uint8_t>>& completed;  // of each command
  std::atomic<uint64_t>& n_completed;
  Checks& checks;

  uint32_t drain() {
    return bam::try_drain<P>(memory.queue, memory.queue.depth, [&](const bam::Completion& done) {
      uint64_t command = memory.owners[done.cid];
      checks.expect(static_cast<uint32_t>(command) == done.dw0, "a completion of another command");
      checks.expect(memory.bytes[done.cid] == bytes_for(command), "a completion before its bytes");
      checks.expect(completed[command].fetch_add(1) == 0, "a command is completed twice");
      n_completed.fetch_add(1);
    });
  }

  void submit(uint64_t first, uint64_t count, Random& random) {
    for (uint64_t next = first; next < first + count;) {
      uint32_t wanted = static_cast<uint32_t>(std::min<uint64_t>(1 + random.below(4), first + count - next));
      bam::TicketRun run = bam::reserve<P>(memory.queue, wanted, ~uint64_t{0}, [&] { return drain(); });
      for (uint32_t i = 0; i < run.count; i++, next++) {
        uint16_t cid = bam::cid_of(memory.queue, run.first + i);
        memory.owners[cid] = next;
        bam::write_sqe(memory.queue, run.first + i, bam::read_command(cid, next, 1, 64));
      }
      bam::publish<P>(memory.queue, run, ~uint64_t{0});
    }
    while (n_completed.load() < completed.size())
      if (drain() == 0) P::pause();
  }
};

std::string stress_queue(uint32_t depth, uint32_t n_submitters, uint64_t commands_each, Checks& checks) {
  QueueMemory memory(depth);
  const uint64_t count = n_submitters * commands_each;
  std::vector<std::atomic<uint8_t>> completed(count);
  std::atomic<uint64_t> n_completed{0};
  run_threads(n_submitters + 1, [&](uint32_t thread) {
    if (thread == n_submitters) return answer(memory, count, checks);
    Random random(thread);
    Submission{memory, completed, n_completed, checks}.submit(thread * commands_each, commands_each, random);
  });
  const bam::QueueWords& words = memory.words[0];
  checks.expect(words.reserved == count && words.published == count && words.completed == count, "counts differ");
  checks.expect(words.drain_lock == 0, "the drain is left locked");
  return std::to_string(n_completed) + " commands";
}

}  // namespace

std::vector<Test> cache_tests() {
  std::vector<Test> tests;
  for (uint32_t policy = 0; policy < 5; policy++)
    for (uint64_t n_lines : {1, 6, 40})  // 40: two sets
      tests.push_back({std::string("page cache, ") + kPolicyNames[policy] + ", lines: " + std::to_string(n_lines),
                       [=](Checks& checks) {
                         return stress_cache<P>({static_cast<bam::Policy>(policy), n_lines, 2 * n_lines + 6, 6, 4000},
                                                checks);
                       }});
  return tests;
}

std::vector<Test> queue_tests() {
  std::vector<Test> tests;
  for (uint32_t depth : {2, 4, 64})
    tests.push_back({"queue pair of depth " + std::to_string(depth),
                     [=](Checks& checks) { return stress_queue(depth, 4, depth == 2 ? 1000 : 4000, checks); }});
  return tests;
}

}  // namespace stress
