#include "bam/host_queues.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

namespace bam {
namespace {

using P = HostPlatform;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kYieldRounds = 256;   // looks without news before a waiting thread sleeps between looks
constexpr uint32_t kSleepUs = 50;
constexpr uint32_t kLastLooks = 64;      // at queues nobody serves any more, while other threads may be draining them
constexpr uint32_t kDoorbellsApart = 16; // 64 bytes: doorbells share no cache line (CAP.DSTRD of 4)

// A thread's wait for progress: the time starts anew whenever there is some.
class Patience {
 public:
  explicit Patience(uint32_t timeout_ms) : timeout_(timeout_ms) { start_anew(); }

  void start_anew() {
    deadline_ = Clock::now() + timeout_;
    quiet_rounds_ = 0;
  }
  // False when the time is over.
  bool wait() {
    if (Clock::now() >= deadline_) return false;
    if (++quiet_rounds_ <= kYieldRounds) P::pause();
    else std::this_thread::sleep_for(std::chrono::microseconds(kSleepUs));
    return true;
  }
  uint32_t quiet_rounds() const { return quiet_rounds_; }

 private:
  std::chrono::milliseconds timeout_;
  Clock::time_point deadline_;
  uint32_t quiet_rounds_;
};

BatchOutcome unfinished(BatchState state, uint64_t completed) { return {state, 0, 0, 0, 0, completed}; }

void raise_to(std::atomic<uint64_t>& most, uint64_t value) {
  uint64_t seen = most.load(std::memory_order_relaxed);
  while (seen < value && !most.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

// The commands of one call. Shared by the caller and by each outstanding command, so a command that completes after
// its caller gave up finds it still there.
struct Batch final : CommandOwner {
  std::atomic<uint64_t> completed{0};
  DeliverBytes deliver;
  uint32_t first_dw0 = 0;  // of command 0; written before it counts as completed
  std::mutex mutex;  // guards `failure`
  BatchOutcome failure{BatchState::done, 0, 0, 0, 0, ~uint64_t{0}};

  explicit Batch(DeliverBytes to) : deliver(std::move(to)) {}

  void finish(uint32_t pair, uint64_t position, const Completion& completion) override {
    if (!succeeded(completion.status)) {
      std::lock_guard lock(mutex);
      if (position < failure.position)
        failure = {BatchState::failed, completion.status, 0, completion.dw0, completion.dw1, position};
    } else if (deliver) {
      deliver(position, pair, completion.cid);
    }
    if (position == 0) first_dw0 = completion.dw0;
    // release: pairs with the acquire in n_completed(); the drainer has acquired the bytes read
    completed.fetch_add(1, std::memory_order_release);
  }

  uint64_t n_completed() const { return completed.load(std::memory_order_acquire); }

  // After every command that was sent has completed; `otherwise` if none failed.
  BatchOutcome outcome(BatchOutcome otherwise) {
    std::lock_guard lock(mutex);
    return failure.state == BatchState::failed ? failure : otherwise;
  }
};

}  // namespace

// Whose command an id is. Plain: written before the command is published and read by the drainer (queue_pair.h).
struct HostQueues::Owner {
  std::shared_ptr<CommandOwner> owner;
  uint64_t position = 0;
  Clock::time_point sent{};
};

HostQueues::HostQueues(uint32_t n_pairs, uint32_t depth)
    : provided_(false),
      sq_(size_t{n_pairs} * depth),
      cq_(size_t{n_pairs} * depth),
      doorbells_(size_t{n_pairs} * 2 * kDoorbellsApart) {
  for (uint32_t pair = 0; pair < n_pairs; pair++) {
    size_t first = size_t{pair} * depth;
    uint32_t* doorbell = &doorbells_[size_t{pair} * 2 * kDoorbellsApart];
    // Queue 0 is the admin queue of a controller; pair i is I/O queue i + 1.
    pairs_.push_back({&sq_[first], &cq_[first], doorbell, doorbell + kDoorbellsApart, nullptr, nullptr, depth, pair + 1});
  }
  set_up(n_pairs, depth);
}

HostQueues::HostQueues(const std::vector<QueuePairState>& pairs) : provided_(true), pairs_(pairs) {
  set_up(static_cast<uint32_t>(pairs.size()), pairs.front().depth);
}

// The submitting side's own memory.
void HostQueues::set_up(uint32_t n_pairs, uint32_t depth) {
  words_.resize(n_pairs);
  free_cids_.resize(size_t{n_pairs} * depth);
  owners_.resize(size_t{n_pairs} * depth);
  for (uint32_t pair = 0; pair < n_pairs; pair++) {
    pairs_[pair].words = &words_[pair];
    pairs_[pair].free_cids = &free_cids_[size_t{pair} * depth];
    init_queue_pair(pairs_[pair]);
  }
}

HostQueues::~HostQueues() = default;

BatchOutcome HostQueues::read(const BlockReads& reads) {
  auto encode = [&reads](uint64_t i, uint32_t, uint16_t cid) {
    return read_command(cid, reads.slbas[i], reads.n_blocks,
                        reinterpret_cast<uint64_t>(reads.out + i * reads.out_stride));
  };
  return run_batch({reads.count, next_pair(), static_cast<uint32_t>(pairs_.size()), reads.timeout_ms, encode});
}

BatchOutcome HostQueues::command(uint32_t pair, const Sqe& sqe, uint32_t timeout_ms) {
  auto encode = [&sqe](uint64_t, uint32_t, uint16_t cid) {
    Sqe sent = sqe;
    sent.cid = cid;
    return sent;
  };
  return run_batch({1, pair, 1, timeout_ms, encode});
}

BatchOutcome HostQueues::run_batch(const BatchPlan& plan) {
  auto batch = std::make_shared<Batch>(plan.deliver);
  Patience patience(plan.timeout_ms);
  uint64_t submitted = 0, completed = 0;
  bool gave_up = false;
  for (uint64_t turns = 0;;) {  // each looks at the next queue pair
    // acquire: pairs with the release in set_life(): what was posted before the controller died is drained below
    QueueLife life = life_.load(std::memory_order_acquire);
    uint64_t before = submitted + completed, epoch = this->epoch();
    if (submitted < plan.count && life == QueueLife::open && !gave_up) {
      uint32_t pair = nth_pair(plan.first_pair, static_cast<uint32_t>(turns++ % plan.n_pairs));
      uint32_t sent = submit_run(pair, submitted, plan.count - submitted, batch, plan.encode);
      submitted += sent;
      if (sent != 0 && submitted < plan.count) continue;
    }
    drain_some(plan.first_pair, static_cast<uint32_t>(std::min<uint64_t>(turns, plan.n_pairs)));
    completed = batch->n_completed();
    if (completed == plan.count) return batch->outcome({BatchState::done, 0, 0, batch->first_dw0, 0, 0});
    bool ended = life != QueueLife::open || gave_up;
    if (ended && completed == submitted) {
      BatchState state = life != QueueLife::open ? BatchState::closed : BatchState::timed_out;
      return batch->outcome(unfinished(state, completed));
    }
    if (life == QueueLife::dead && patience.quiet_rounds() >= kLastLooks)
      return unfinished(BatchState::closed, completed);
    if (submitted + completed != before) {
      patience.start_anew();
    } else if (!patience.wait()) {
      timeouts_.fetch_add(1, std::memory_order_relaxed);
      if (plan.recover == nullptr || gave_up) return unfinished(BatchState::timed_out, completed);
      plan.recover(epoch);
      patience.start_anew();
      gave_up = true;  // what was not sent yet would wait as long again
    }
  }
}

uint32_t HostQueues::submit_run(uint32_t pair, uint64_t first, uint64_t count,
                                const std::shared_ptr<CommandOwner>& owner, const EncodeCommand& encode,
                                const uint64_t* numbers) {
  std::shared_lock<std::shared_mutex> inside;
  if (!enter(&inside)) return 0;
  const QueuePairState& queue = pairs_[pair];
  TicketRun run = try_reserve<P>(queue, static_cast<uint32_t>(std::min<uint64_t>(count, kRunCommands)));
  if (run.count == 0) return 0;
  Clock::time_point now = provided_ ? Clock::now() : Clock::time_point{};
  for (uint32_t i = 0; i < run.count; i++) {
    uint16_t cid = cid_of(queue, run.first + i);
    uint64_t number = numbers == nullptr ? first + i : numbers[i];
    owners_[size_t{pair} * queue.depth + cid] = {owner, number, now};
    write_sqe(queue, run.first + i, encode(number, pair, cid));
  }
  // Without a bound: the threads waited for are past their own reservations, run in this process and wait for
  // nothing but each other's turn, and giving up a reserved run would stop the queue for good.
  publish<P>(queue, run, ~uint64_t{0});
  commands_.fetch_add(run.count, std::memory_order_relaxed);
  sq_doorbell_writes_.fetch_add(1, std::memory_order_relaxed);
  raise_to(max_outstanding_, outstanding<P>(queue));
  return run.count;
}

void HostQueues::drain(uint32_t pair) {
  std::shared_lock<std::shared_mutex> inside;
  if (!enter(&inside)) return;
  const QueuePairState& queue = pairs_[pair];
  uint32_t drained = try_drain<P>(queue, queue.depth, [&](const Completion& completion) {
    Owner owner = std::move(owners_[size_t{pair} * queue.depth + completion.cid % queue.depth]);
    if (owner.owner != nullptr) owner.owner->finish(pair, owner.position, completion);
  });
  if (drained != 0) cq_doorbell_writes_.fetch_add(1, std::memory_order_relaxed);
}

void HostQueues::drain_some(uint32_t first_pair, uint32_t n_pairs) {
  for (uint32_t i = 0; i < n_pairs; i++) drain(nth_pair(first_pair, i));
}

uint32_t HostQueues::nth_pair(uint32_t first_pair, uint32_t n) const {
  return static_cast<uint32_t>((uint64_t{first_pair} + n) % pairs_.size());
}

void HostQueues::set_life(QueueLife life) {
  // release: pairs with the acquire in run_batch()
  life_.store(life, std::memory_order_release);
}

bool HostQueues::enter(std::shared_lock<std::shared_mutex>* inside) {
  if (!provided_) return true;
  if (paused_.load(std::memory_order_relaxed)) return false;
  *inside = std::shared_lock(gate_);
  return !paused_.load(std::memory_order_relaxed);  // the gate orders it
}

void HostQueues::pause() {
  paused_.store(true, std::memory_order_relaxed);
  std::unique_lock wait_for_those_inside(gate_);
}

void HostQueues::resume() {
  std::unique_lock alone(gate_);
  paused_.store(false, std::memory_order_relaxed);
}

void HostQueues::restart(const Completion& lost) {
  std::unique_lock alone(gate_);
  finish_all(lost);
  for (const QueuePairState& queue : pairs_) {
    std::fill_n(queue.sq, queue.depth, Sqe{});
    std::fill_n(queue.cq, queue.depth, CqeWords{});
    *queue.words = QueueWords{};
    init_queue_pair(queue);
  }
  // release: pairs with the acquire in epoch()
  epoch_.fetch_add(1, std::memory_order_release);
}

void HostQueues::abandon(const Completion& lost) {
  paused_.store(true, std::memory_order_relaxed);
  std::unique_lock alone(gate_);
  set_life(QueueLife::dead);
  finish_all(lost);
}

void HostQueues::finish_all(const Completion& lost) {
  for (uint32_t pair = 0; pair < pairs_.size(); pair++) {
    for (uint32_t cid = 0; cid < pairs_[pair].depth; cid++) {
      Owner owner = std::exchange(owners_[size_t{pair} * pairs_[pair].depth + cid], Owner{});
      if (owner.owner == nullptr) continue;
      owner.owner->finish(pair, owner.position, {static_cast<uint16_t>(cid), lost.status, lost.dw0, lost.dw1});
    }
  }
}

std::vector<OutstandingCommand> HostQueues::outstanding_commands() {
  std::unique_lock alone(gate_);
  Clock::time_point now = Clock::now();
  std::vector<OutstandingCommand> found;
  for (const QueuePairState& queue : pairs_) {
    const Owner* owners = &owners_[static_cast<size_t>(&queue - pairs_.data()) * queue.depth];
    for (uint32_t cid = 0; cid < queue.depth; cid++) {
      if (owners[cid].owner == nullptr) continue;
      auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - owners[cid].sent);
      found.push_back({queue.queue_id, cid, static_cast<uint64_t>(age.count())});
    }
  }
  return found;
}

QueueCounters HostQueues::counters() const {
  auto value = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {value(commands_), value(sq_doorbell_writes_), value(cq_doorbell_writes_), value(max_outstanding_),
          value(timeouts_)};
}

}  // namespace bam
