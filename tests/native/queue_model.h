// A queue pair as a model: submitters, drainers and a controller that share one queue.
//
// Words the shared header reaches with plain accesses (SQ slots, the tape of free command ids) have a Plain twin
// here, touched at the same moments, so that the explorer also proves that those accesses are ordered.
#pragma once

#include <memory>

#include "bam/queue_pair.h"
#include "scenario.h"

namespace model {

using bam::Completion;
using bam::QueuePairState;
using bam::Sqe;
using bam::TicketRun;
using explorer::expect;
using explorer::Plain;
using explorer::reached;
using explorer::ScheduledPlatform;

constexpr uint32_t kMaxDepth = 4;
constexpr uint32_t kMaxCommands = 16;
constexpr uint32_t kMostPauses = 1;

enum class Role { submitter, draining_submitter, drainer, controller };

struct QueueThread {
  Role role;
  std::vector<uint32_t> runs = {};  // submitters: tickets wanted at a time
};

struct QueueScript {
  uint32_t depth;
  std::vector<QueueThread> threads;
  bool newest_first = false;     // the controller completes the newest fetched command first
  uint32_t hold = 1;             // and waits for so many, while more can come, before it completes one
  bool fail_odd = false;         // and fails every second command
  bool bounded_waits = false;    // submitters use reserve() and publish() and give up, and retry, often
  uint32_t drain_most = kMaxDepth;
};

enum QueueEvent : size_t {
  kNoCredit, kPartialRun, kLaterFirst, kWaitedForEarlier, kOutOfOrder, kSeveralDrained, kDrainBusy, kGaveUp,
};
inline const std::vector<const char*> kQueueEvents = {
    "no credit", "a run cut short by credit", "a later ticket written first", "a publish that had to wait",
    "completion out of order", "several drained at once", "a drain that was taken", "a bounded wait that gave up",
};

struct RealQueue {
  using P = ScheduledPlatform;
  static TicketRun try_reserve(const QueuePairState& queue, uint32_t wanted) {
    return bam::try_reserve<P>(queue, wanted);
  }
  static uint16_t cid_of(const QueuePairState& queue, uint64_t ticket) { return bam::cid_of(queue, ticket); }
  static bool try_publish(const QueuePairState& queue, TicketRun run) { return bam::try_publish<P>(queue, run); }
  template <class Sink>
  static uint32_t try_drain(const QueuePairState& queue, uint32_t most, Sink&& sink) {
    return bam::try_drain<P>(queue, most, sink);
  }
  static uint32_t commands_waiting(const QueuePairState& queue, const bam::ControllerCursor& cursor) {
    return bam::commands_waiting<P>(queue, cursor);
  }
  static bool can_post(const QueuePairState& queue, const bam::ControllerCursor& cursor) {
    return bam::can_post<P>(queue, cursor);
  }
  static void post_completion(const QueuePairState& queue, bam::ControllerCursor& cursor, const Completion& done) {
    bam::post_completion<P>(queue, cursor, done);
  }
};

template <class Queue>
struct QueueWorld {
  Sqe sq[kMaxDepth];
  bam::CqeWords cq[kMaxDepth];
  bam::QueueWords words;
  uint32_t sq_doorbell, cq_doorbell;
  uint16_t free_cids[kMaxDepth];
  Plain<uint64_t> sq_twin[kMaxDepth], tape_twin[kMaxDepth];
  Plain<uint64_t> request[kMaxDepth];     // what a submitter keeps for a command id: the command's number
  Plain<uint64_t> payload[kMaxCommands];  // bytes the controller reads in for a command
  // What a thread keeps from one step to the next. It lies here and not on stacks, so that equal states look equal.
  struct Local {
    TicketRun run;  // reserved and not yet published
    uint32_t wanted, next_run;
    uint64_t command;
    uint8_t held[kMaxDepth];  // controller: what it fetched, oldest first
    uint32_t n_held;
  };
  Local local[explorer::kMaxThreads];
  // Book-keeping of the model itself, not shared data.
  bool cid_busy[kMaxDepth];
  uint8_t fetched[kMaxCommands], completed[kMaxCommands];
  uint8_t n_completed, last_fetched;
  uint64_t last_tail;
  bam::ControllerCursor cursor;
  const QueueScript* script;

  QueuePairState queue() const {
    auto* self = const_cast<QueueWorld*>(this);
    return {self->sq,     self->cq, &self->sq_doorbell, &self->cq_doorbell, &self->words, self->free_cids,
            script->depth, 7};
  }

  static constexpr uint64_t start_block_of(uint64_t command) { return 0x100000000u + 8 * command; }
  static constexpr uint64_t payload_of(uint64_t command) { return 5000 + command; }
  static constexpr uint64_t destination_of(uint64_t command) { return 0x7000 + 64 * command; }
  uint16_t status_for(uint64_t command) const {
    return bam::status_field(script->fail_odd && command % 2 == 1 ? bam::Status::unrecovered_read_error
                                                                  : bam::Status::success);
  }

  void run(uint32_t thread) {
    local[thread].command = first_command(thread);
    while (step(thread)) explorer::Fiber::scrub();
  }

  // False: the thread has nothing left to do.
  __attribute__((noinline)) bool step(uint32_t thread) {
    const QueueThread& what = script->threads[thread];
    Local& me = local[thread];
    switch (what.role) {
      case Role::controller:
        if (cursor.posted == n_commands()) return false;
        control(me);
        return true;
      case Role::drainer: return drain_step();
      case Role::draining_submitter:
      case Role::submitter:
        if (me.run.count != 0) {
          publish(me);
          return true;
        }
        if (me.wanted == 0 && me.next_run < what.runs.size()) me.wanted = what.runs[me.next_run++];
        if (me.wanted != 0) {
          reserve(me, what.role == Role::draining_submitter);
          return true;
        }
        return what.role == Role::draining_submitter && drain_step();
    }
    return false;
  }

  bool drain_step() {
    if (n_completed == n_commands()) return false;
    if (drain() == 0) ScheduledPlatform::pause();
    return true;
  }

  // ---- submitters

  void reserve(Local& me, bool drains) {
    auto when_full = [&]() -> uint32_t { return drains ? drain() : 0; };
    TicketRun run = script->bounded_waits
                        ? bam::reserve<ScheduledPlatform>(queue(), me.wanted, kMostPauses, when_full)
                        : Queue::try_reserve(queue(), me.wanted);
    if (run.count == 0) {
      reached(script->bounded_waits ? kGaveUp : kNoCredit);
      if (script->bounded_waits || when_full() == 0) ScheduledPlatform::pause();
      return;
    }
    if (run.count < me.wanted) reached(kPartialRun);
    if (run.first != words.published) reached(kLaterFirst);
    for (uint32_t i = 0; i < run.count; i++) write(run.first + i, me.command + i);
    me.run = run;
    me.wanted -= run.count;
    me.command += run.count;
  }

  void write(uint64_t ticket, uint64_t command) {
    tape_twin[slot(ticket)].load();
    uint16_t cid = Queue::cid_of(queue(), ticket);
    expect(cid < script->depth, "a command id that is out of range");
    expect(!cid_busy[cid], "a command id is given out while it is outstanding");
    cid_busy[cid] = true;
    request[cid].store(command);
    sq_twin[slot(ticket)].store(command);
    bam::write_sqe(queue(), ticket, bam::read_command(cid, start_block_of(command), 8, destination_of(command)));
  }

  void publish(Local& me) {
    bool published = script->bounded_waits ? bam::publish<ScheduledPlatform>(queue(), me.run, kMostPauses)
                                           : Queue::try_publish(queue(), me.run);
    if (published) {
      me.run = {};
      return;
    }
    reached(script->bounded_waits ? kGaveUp : kWaitedForEarlier);
    ScheduledPlatform::pause();
  }

  // ---- drainers

  uint32_t drain() {
    if (words.drain_lock != 0) reached(kDrainBusy);
    uint32_t count = Queue::try_drain(queue(), script->drain_most, [&](const Completion& done) { finish(done); });
    if (count > 1) reached(kSeveralDrained);
    return count;
  }

  void finish(const Completion& done) {
    expect(done.cid < script->depth && cid_busy[done.cid], "a completion for a command id that is not outstanding");
    uint64_t command = request[done.cid].load();
    expect(payload[command].load() == payload_of(command), "a completion before its bytes");
    expect(done.dw0 == command && done.dw1 == ~done.dw0, "a completion of another command, or a torn one");
    expect(bam::status_of(done.status) == bam::status_of(status_for(command)),
           "another status than it was posted with");
    expect(++completed[command] == 1, "a command is completed twice");
    tape_twin[slot(n_completed)].store(done.cid);
    n_completed++;
    cid_busy[done.cid] = false;
  }

  // ---- controller

  void control(Local& me) {
    uint32_t waiting = Queue::commands_waiting(queue(), cursor);
    expect(waiting != bam::kInvalidDoorbell, "the doorbell names no slot");
    expect(me.n_held + waiting < script->depth, "more than depth - 1 commands are outstanding");
    for (; waiting != 0; waiting--) me.held[me.n_held++] = fetch();
    bool more_can_come = cursor.fetched < n_commands();
    if (me.n_held == 0 || (me.n_held < script->hold && more_can_come)) return ScheduledPlatform::pause();
    uint32_t chosen = script->newest_first ? me.n_held - 1 : 0;
    if (chosen != 0) reached(kOutOfOrder);
    post(me.held[chosen]);
    for (me.n_held--; chosen < me.n_held; chosen++) me.held[chosen] = me.held[chosen + 1];
    me.held[me.n_held] = 0;
  }

  uint8_t fetch() {
    uint64_t expected = sq_twin[slot(cursor.fetched)].load();
    Sqe sqe = bam::fetch_command(queue(), cursor);
    uint64_t command = (bam::start_block(sqe) - start_block_of(0)) / 8;
    expect(command == expected && command < n_commands() && bam::block_count(sqe) == 8 && sqe.nsid == 1 &&
               sqe.prp1 == destination_of(command) && sqe.cid < script->depth && cid_busy[sqe.cid],
           "a fetched entry is not the one that was written");
    expect(++fetched[command] == 1, "a command is fetched twice");
    payload[command].store(payload_of(command));
    return static_cast<uint8_t>(sqe.cid << 4 | command);
  }

  void post(uint8_t held) {
    const uint32_t command = held & 15u;
    expect(Queue::can_post(queue(), cursor), "no room for a completion although every submitter keeps to its credit");
    Queue::post_completion(queue(), cursor,
                           {static_cast<uint16_t>(held >> 4), status_for(command), command, ~command});
  }

  // ---- checks

  void check_state() {
    const uint32_t most = script->depth - 1;
    expect(words.reserved - words.completed <= most, "more than depth - 1 tickets are out");
    expect(words.published <= words.reserved && words.completed <= words.reserved, "counts that overtake each other");
    expect(cursor.posted - words.completed <= most, "a completion was overwritten before it was drained");
    last_tail += slot(sq_doorbell - last_tail);
    expect(last_tail <= words.reserved, "the doorbell went back");
    expect(words.completed <= last_tail, "more is completed than the controller was told of");
  }

  void check_end() const {
    expect(n_completed == n_commands(), "commands are left");
    expect(words.reserved == n_commands() && words.published == n_commands() && words.completed == n_commands(),
           "counts differ at the end");
    expect(sq_doorbell == slot(n_commands()) && cq_doorbell == slot(n_commands()), "doorbells differ at the end");
    expect(words.drain_lock == 0, "the drain is left locked");
    uint32_t free = 0;
    for (uint32_t i = 0; i < script->depth; i++) free |= 1u << free_cids[i];
    expect(free == (1u << script->depth) - 1, "a command id is lost");
  }

  uint32_t slot(uint64_t count) const { return static_cast<uint32_t>(count) & (script->depth - 1); }
  uint64_t first_command(uint32_t thread) const {
    uint64_t first = 0;
    for (uint32_t t = 0; t < thread; t++)
      for (uint32_t run : script->threads[t].runs) first += run;
    return first;
  }
  uint64_t n_commands() const { return first_command(static_cast<uint32_t>(script->threads.size())); }
};

template <class Queue>
QueueWorld<Queue>& queue_world() {
  alignas(64) static QueueWorld<Queue> world;
  return world;
}

template <class Queue>
explorer::Findings explore_queue(const QueueScript& script, const explorer::Limits& limits) {
  using World = QueueWorld<Queue>;
  World& world = queue_world<Queue>();
  world = {};
  world.script = &script;
  bam::init_queue_pair(world.queue());
  explorer::Program program{&world, sizeof world, static_cast<uint32_t>(script.threads.size()),
                            [](void* at, uint32_t thread) { static_cast<World*>(at)->run(thread); },
                            [](void* at) { static_cast<World*>(at)->check_state(); },
                            [](const void* at) { static_cast<const World*>(at)->check_end(); }};
  return explorer::Search(program, limits).run();
}

inline std::string describe_cqe_low(uint64_t word) {
  bam::Cqe cqe = bam::unpack_cqe({word, 0});
  return "{dw0 " + std::to_string(cqe.dw0) + ", dw1 " + std::to_string(cqe.dw1) + "}";
}
inline std::string describe_cqe_high(uint64_t word) {
  bam::Cqe cqe = bam::unpack_cqe({0, word});
  return "{cid " + std::to_string(cqe.cid) + ", status " + std::to_string(bam::status_of(cqe.status)) + ", phase " +
         std::to_string(cqe.status & bam::kPhaseBit) + "}";
}

template <class Queue>
explorer::Names queue_names() {
  const QueueWorld<Queue>& world = queue_world<Queue>();
  explorer::Names names;
  names.add("cq", world.cq, kMaxDepth, describe_cqe_low);
  for (const bam::CqeWords& entry : world.cq) names.add("cq phase word", &entry.high, 1, describe_cqe_high);
  names.add("reserved", &world.words.reserved);
  names.add("published", &world.words.published);
  names.add("completed", &world.words.completed);
  names.add("drain_lock", &world.words.drain_lock);
  names.add("sq_doorbell", &world.sq_doorbell);
  names.add("cq_doorbell", &world.cq_doorbell);
  names.add("sq entry", world.sq_twin, kMaxDepth);
  names.add("free_cids", world.tape_twin, kMaxDepth);
  names.add("request", world.request, kMaxDepth);
  names.add("payload", world.payload, kMaxCommands);
  return names;
}

template <class Queue>
explorer::Scenario queue_scenario(std::string name, QueueScript script, uint64_t min_states,
                                  std::vector<size_t> must_reach, std::string violation = "",
                                  explorer::Limits limits = {}) {
  auto kept = std::make_shared<QueueScript>(std::move(script));
  return {std::move(name), [kept, limits] { return explore_queue<Queue>(*kept, limits); }, queue_names<Queue>,
          std::move(violation), min_states, std::move(must_reach), kQueueEvents};
}

}  // namespace model
