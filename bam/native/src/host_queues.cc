#include "bam/host_queues.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

namespace bam {
namespace {

using P = HostPlatform;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kRunCommands = 32;    // most commands published by one doorbell write
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

}  // namespace

// The commands of one call. Shared by the caller and by each outstanding command, so a command that completes after
// its caller gave up finds it still there.
struct Batch {
  std::atomic<uint64_t> completed{0};
  std::mutex mutex;  // guards `failure`
  BatchOutcome failure{BatchState::done, 0, 0, 0, 0, ~uint64_t{0}};

  void finish(uint64_t position, const Completion& completion) {
    if (!succeeded(completion.status)) {
      std::lock_guard lock(mutex);
      if (position < failure.position)
        failure = {BatchState::failed, completion.status, 0, completion.dw0, completion.dw1, position};
    }
    // release: pairs with the acquire in n_completed(); the drainer has acquired the bytes read
    completed.fetch_add(1, std::memory_order_release);
  }

  uint64_t n_completed() const { return completed.load(std::memory_order_acquire); }

  // After every command completed.
  BatchOutcome outcome() {
    std::lock_guard lock(mutex);
    BatchOutcome found = failure;
    if (found.state == BatchState::done) found.position = 0;
    return found;
  }
};

// Whose command an id is. Plain: written before the command is published and read by the drainer (queue_pair.h).
struct HostQueues::Owner {
  std::shared_ptr<Batch> batch;
  uint64_t position = 0;
};

HostQueues::HostQueues(uint32_t n_pairs, uint32_t depth)
    : sq_(size_t{n_pairs} * depth),
      cq_(size_t{n_pairs} * depth),
      doorbells_(size_t{n_pairs} * 2 * kDoorbellsApart),
      words_(n_pairs),
      free_cids_(size_t{n_pairs} * depth),
      owners_(size_t{n_pairs} * depth) {
  for (uint32_t pair = 0; pair < n_pairs; pair++) {
    size_t first = size_t{pair} * depth;
    uint32_t* doorbell = &doorbells_[size_t{pair} * 2 * kDoorbellsApart];
    // Queue 0 is the admin queue of a controller; pair i is I/O queue i + 1.
    pairs_.push_back({&sq_[first], &cq_[first], doorbell, doorbell + kDoorbellsApart, &words_[pair],
                      &free_cids_[first], depth, pair + 1});
    init_queue_pair(pairs_.back());
  }
}

HostQueues::~HostQueues() = default;

BatchOutcome HostQueues::read(const BlockReads& reads) {
  auto encode = [&reads](uint64_t i, uint16_t cid) {
    return read_command(cid, reads.slbas[i], reads.n_blocks,
                        reinterpret_cast<uint64_t>(reads.out + i * reads.out_stride));
  };
  uint32_t n_pairs = static_cast<uint32_t>(pairs_.size());
  uint32_t first = static_cast<uint32_t>(next_pair_.fetch_add(1, std::memory_order_relaxed) % n_pairs);
  return run_batch(reads.count, first, n_pairs, reads.timeout_ms, encode);
}

BatchOutcome HostQueues::command(uint32_t pair, const Sqe& sqe, uint32_t timeout_ms) {
  auto encode = [&sqe](uint64_t, uint16_t cid) {
    Sqe sent = sqe;
    sent.cid = cid;
    return sent;
  };
  return run_batch(1, pair, 1, timeout_ms, encode);
}

// Deals runs of commands to `n_pairs` queue pairs in turn, then waits for all.
template <class Encode>
BatchOutcome HostQueues::run_batch(uint64_t count, uint32_t first_pair, uint32_t n_pairs, uint32_t timeout_ms,
                                   Encode&& encode) {
  auto batch = std::make_shared<Batch>();
  Patience patience(timeout_ms);
  uint64_t submitted = 0, completed = 0;
  for (uint64_t turns = 0;;) {  // each looks at the next queue pair
    // acquire: pairs with the release in set_life(): what was posted before the controller died is drained below
    QueueLife life = life_.load(std::memory_order_acquire);
    uint64_t before = submitted + completed;
    if (submitted < count && life == QueueLife::open) {
      uint32_t pair = nth_pair(first_pair, static_cast<uint32_t>(turns++ % n_pairs));
      uint32_t sent = submit_run(pair, submitted, count - submitted, batch, encode);
      submitted += sent;
      if (sent != 0 && submitted < count) continue;
    }
    drain_some(first_pair, static_cast<uint32_t>(std::min<uint64_t>(turns, n_pairs)));
    completed = batch->n_completed();
    if (completed == count) return batch->outcome();
    if (life != QueueLife::open && completed == submitted) return unfinished(BatchState::closed, completed);
    if (life == QueueLife::dead && patience.quiet_rounds() >= kLastLooks)
      return unfinished(BatchState::closed, completed);
    if (submitted + completed != before) {
      patience.start_anew();
    } else if (!patience.wait()) {
      timeouts_.fetch_add(1, std::memory_order_relaxed);
      return unfinished(BatchState::timed_out, completed);
    }
  }
}

// Publishes commands first, first + 1 ... of a batch, as many as one run and the credit allow; returns how many.
template <class Encode>
uint32_t HostQueues::submit_run(uint32_t pair, uint64_t first, uint64_t count, const std::shared_ptr<Batch>& batch,
                                Encode&& encode) {
  const QueuePairState& queue = pairs_[pair];
  TicketRun run = try_reserve<P>(queue, static_cast<uint32_t>(std::min<uint64_t>(count, kRunCommands)));
  if (run.count == 0) return 0;
  for (uint32_t i = 0; i < run.count; i++) {
    uint16_t cid = cid_of(queue, run.first + i);
    owners_[size_t{pair} * queue.depth + cid] = {batch, first + i};
    write_sqe(queue, run.first + i, encode(first + i, cid));
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
  const QueuePairState& queue = pairs_[pair];
  uint32_t drained = try_drain<P>(queue, queue.depth, [&](const Completion& completion) {
    Owner owner = std::move(owners_[size_t{pair} * queue.depth + completion.cid % queue.depth]);
    if (owner.batch != nullptr) owner.batch->finish(owner.position, completion);
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

QueueCounters HostQueues::counters() const {
  auto value = [](const std::atomic<uint64_t>& counter) { return counter.load(std::memory_order_relaxed); };
  return {value(commands_), value(sq_doorbell_writes_), value(cq_doorbell_writes_), value(max_outstanding_),
          value(timeouts_)};
}

}  // namespace bam
