// Queue pairs of a drive that is reset, again and again, while threads read through them.
//
// The drive is a thread that answers from what the queues say; a reset stops it, forgets its place, and starts it
// anew, as clearing CC.EN does.
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "bam/host_queues.h"
#include "stress.h"

namespace stress {
namespace {

using P = bam::HostPlatform;

constexpr uint32_t kPairs = 2, kDepth = 8, kThreads = 4, kRounds = 150, kBatch = 24, kLost = 125;

// Entries and doorbells, as they would lie in memory of the drive's and in its registers.
struct DriveMemory {
  std::vector<bam::Sqe> sq = std::vector<bam::Sqe>(kPairs * kDepth);
  std::vector<bam::CqeWords> cq = std::vector<bam::CqeWords>(kPairs * kDepth);
  std::vector<uint32_t> doorbells = std::vector<uint32_t>(kPairs * 32);

  std::vector<bam::QueuePairState> pairs() {
    std::vector<bam::QueuePairState> found;
    for (uint32_t i = 0; i < kPairs; i++)
      found.push_back({&sq[i * kDepth], &cq[i * kDepth], &doorbells[i * 32], &doorbells[i * 32 + 16], nullptr, nullptr,
                       kDepth, i + 1});
    return found;
  }
};

// Answers each read with its own block number, and writes that number to the destination.
class Drive {
 public:
  explicit Drive(DriveMemory& memory) : memory_(memory), pairs_(memory.pairs()) { start(); }
  ~Drive() { stop(); }

  void reset() {
    stop();
    for (uint32_t& doorbell : memory_.doorbells) doorbell = 0;
    start();
  }

 private:
  void start() {
    stopping_ = false;
    thread_ = std::thread([this] { serve(); });
  }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void serve() {
    bam::ControllerCursor cursors[kPairs] = {};
    while (!stopping_) {
      for (uint32_t i = 0; i < kPairs; i++) {
        while (bam::commands_waiting<P>(pairs_[i], cursors[i]) != 0 && bam::can_post<P>(pairs_[i], cursors[i])) {
          bam::Sqe sqe = bam::fetch_command(pairs_[i], cursors[i]);
          uint64_t block = bam::start_block(sqe);
          std::memcpy(reinterpret_cast<void*>(sqe.prp1), &block, sizeof block);
          bam::post_completion<P>(pairs_[i], cursors[i], {sqe.cid, 0, 0, 0});
        }
      }
      std::this_thread::yield();
    }
  }

  DriveMemory& memory_;
  std::vector<bam::QueuePairState> pairs_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

std::string stress_resets(Checks& checks) {
  DriveMemory memory;
  bam::HostQueues queues(memory.pairs());
  Drive drive(memory);
  std::atomic<uint64_t> done{0}, lost{0}, resets{0};
  std::atomic<uint32_t> finished{0};
  run_threads(kThreads + 1, [&](uint32_t thread) {
    if (thread == kThreads) {  // resets the drive until the others have ended
      while (finished < kThreads) {
        queues.pause();
        drive.reset();
        queues.restart({0, bam::status_field(bam::Status::abort_requested), kLost, 0});
        queues.resume();
        resets++;
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
      return;
    }
    Random random(thread);
    for (uint32_t round = 0; round < kRounds; round++) {
      uint64_t blocks[kBatch], out[kBatch] = {};
      for (uint64_t& block : blocks) block = 1 + random.below(1u << 20);
      bam::BatchPlan plan{kBatch, queues.next_pair(), kPairs, 60'000,
                          [&](uint64_t i, uint32_t, uint16_t cid) {
                            return bam::read_command(cid, blocks[i], 1, reinterpret_cast<uint64_t>(&out[i]));
                          }};
      bam::BatchOutcome outcome = queues.run_batch(plan);
      bool all = outcome.state == bam::BatchState::done;
      checks.expect(all || (outcome.state == bam::BatchState::failed && outcome.dw0 == kLost), "another end");
      if (all) checks.expect(std::memcmp(blocks, out, sizeof out) == 0, "a read that ended well has wrong bytes");
      (all ? done : lost)++;
    }
    finished++;
  });
  checks.expect(resets > 0 && done + lost == kThreads * kRounds, "batches are missing");
  return std::to_string(done) + " batches read, " + std::to_string(lost) + " lost in " + std::to_string(resets) +
         " resets";
}

}  // namespace

std::vector<Test> reset_tests() { return {{"queue pairs of a drive that is reset", stress_resets}}; }

}  // namespace stress
