// One NVMe submission / completion queue pair, shared by many submitters, one drainer at a time and a controller.
//
//   submitter    try_reserve -> cid_of, write_sqe for each ticket -> publish          (any number at once)
//   drainer      try_drain: reads CQEs, hands them to a sink, returns credit          (one at a time: a try-lock)
//   controller   commands_waiting -> fetch_command ... can_post -> post_completion    (one per queue pair)
//
// Tickets count commands from 0 and never wrap (64 bits). Command t lies in SQ slot t % depth; the k-th completion
// lies in CQ slot k % depth. `depth` is a power of two.
//
// Credit. A ticket t is given out only while t < completed + depth - 1, where `completed` counts completions that
// were drained. So at most depth - 1 commands are anywhere between reservation and drain, hence
//   - no SQ slot is overwritten before its command was fetched, and tail == head always means empty;
//   - no CQ slot is overwritten before its entry was drained: the controller never lacks room.
// (Credit counted in *fetched* commands, the SQ head in the CQE, would keep the first promise alone.)
//
// Command ids. An SSD wants them unique among outstanding commands, and commands complete in any order, so an id
// cannot follow from the ticket. `free_cids` is the last `depth` places of an endless tape of free ids: place i < depth
// holds i at the start, ticket t takes the id at place t, completion k appends its command's id at place depth + k.
// Every id is either on the unread part of the tape or outstanding, once. Places share slots modulo depth, and that
// is safe without atomics:
//   - ticket t >= depth reads what completion t - depth wrote: credit says completed >= t + 2 - depth, and the
//     acquire of `completed` in try_reserve pairs with the release in return_credit;
//   - completion k overwrites what ticket k read: k + 1 commands have completed, they were published in ticket
//     order, so ticket k was published, after its read; doorbell, fetch, CQE and drain carry that to the writer.
// Anything a submitter keeps per command id (its request, its line) is safe by the same argument, if it is written
// before publish() and read by the sink.
//
// A submitter that reserved must publish: later tickets wait for it. Nothing between reserve and publish waits.
//
// Warps. One lane reserves and publishes, the lanes between write one entry each; __syncwarp() before publish() makes
// their writes part of its release. Likewise in a drain: a lane reads completion first + lane, uses it and recycles
// its id; after __syncwarp() one lane returns the credit of the run without a gap.
#pragma once

#include "bam/nvme.h"

namespace bam {

constexpr uint32_t kMinQueueDepth = 2;
constexpr uint32_t kMaxQueueDepth = 1u << 15;  // command id FFFFh is reserved, and this leaves it out

// Words of the submitting side, apart from each other so that they do not share a cache line. All zero at the start.
struct QueueWords {
  alignas(64) uint64_t reserved;   // next ticket
  alignas(64) uint64_t published;  // tickets whose commands the controller was told of
  alignas(64) uint64_t completed;  // completions drained; also the CQ head
  alignas(64) uint32_t drain_lock;
};
static_assert(sizeof(QueueWords) == 256, "ABI");

// Where a queue pair lies. Plain memory owned by the caller, all zero before init_queue_pair().
struct QueuePairState {
  Sqe* sq;                // [depth]  read by the controller
  CqeWords* cq;           // [depth]  written by the controller
  uint32_t* sq_doorbell;  // tail, modulo depth
  uint32_t* cq_doorbell;  // head, modulo depth
  QueueWords* words;      // submitting side only
  uint16_t* free_cids;    // [depth], submitting side only
  uint32_t depth;
  uint32_t queue_id;
};

struct TicketRun {
  uint64_t first;
  uint32_t count;  // 0: no credit
};

struct Completion {
  uint16_t cid;
  uint16_t status;  // field of the CQE; succeeded(), status_of()
  uint32_t dw0;
  uint32_t dw1;
};

BAM_HD constexpr bool valid_depth(uint32_t depth) {
  return depth >= kMinQueueDepth && depth <= kMaxQueueDepth && (depth & (depth - 1)) == 0;
}

BAM_HD inline uint32_t slot_of(const QueuePairState& queue, uint64_t count) {
  return static_cast<uint32_t>(count) & (queue.depth - 1);
}

// Before anybody uses the queue pair.
BAM_HD inline void init_queue_pair(const QueuePairState& queue) {
  for (uint32_t cid = 0; cid < queue.depth; cid++) queue.free_cids[cid] = static_cast<uint16_t>(cid);
}

// ---- submitters

// Takes up to `wanted` tickets, as many as there is credit for. Never waits, and leaves nothing behind when it
// returns none. Partial runs keep a long run from starving behind short ones.
template <class P>
BAM_HD TicketRun try_reserve(const QueuePairState& queue, uint32_t wanted) {
  typename P::template Atomic<uint64_t> reserved(queue.words->reserved), completed(queue.words->completed);
  for (;;) {
    // Read first, so it cannot be ahead of `first`; an old value only hides credit.
    // acquire: pairs with the release in return_credit(), so the free command ids are visible
    uint64_t done = completed.load(P::acquire);
    uint64_t first = reserved.load(P::relaxed);
    uint64_t used = first - done;
    if (used >= queue.depth - 1) return {first, 0};
    uint32_t room = queue.depth - 1 - static_cast<uint32_t>(used);
    uint32_t count = wanted < room ? wanted : room;
    if (reserved.compare_exchange_weak(first, first + count, P::relaxed, P::relaxed)) return {first, count};
  }
}

// The command id of a ticket the caller holds.
BAM_HD inline uint16_t cid_of(const QueuePairState& queue, uint64_t ticket) {
  return queue.free_cids[slot_of(queue, ticket)];
}

BAM_HD inline void write_sqe(const QueuePairState& queue, uint64_t ticket, const Sqe& sqe) {
#if defined(__CUDA_ARCH__)
  // Four stores of 16 bytes: the compiler makes a dozen of a struct's fields, and each may be a write over PCIe.
  uint4 parts[4];
  memcpy(parts, &sqe, sizeof parts);
  uint4* slot = reinterpret_cast<uint4*>(&queue.sq[slot_of(queue, ticket)]);
  for (int i = 0; i < 4; i++) slot[i] = parts[i];
#else
  queue.sq[slot_of(queue, ticket)] = sqe;
#endif
}

// Tells the controller of the run, one doorbell write for all of it, if every earlier ticket was published.
template <class P>
BAM_HD bool try_publish(const QueuePairState& queue, TicketRun run) {
  typename P::template Atomic<uint64_t> published(queue.words->published);
  // acquire: pairs with the release below, so that the doorbell also covers the earlier runs' entries
  if (published.load(P::acquire) != run.first) return false;
  uint64_t next = run.first + run.count;
  // release: pairs with the acquire in commands_waiting(): who sees the tail sees the entries before it.
  // Before `published` moves, so tails are written in order and none is overwritten by an older one.
  typename P::template System<uint32_t>(*queue.sq_doorbell).store(slot_of(queue, next), P::release);
  published.store(next, P::release);
  return true;
}

// The same, waiting for earlier tickets, which wait for nothing else. False after `max_pauses` pauses: not
// published, and the queue stands still until it is.
template <class P>
BAM_HD bool publish(const QueuePairState& queue, TicketRun run, uint64_t max_pauses) {
  for (uint64_t pauses = 0;; pauses++) {
    if (try_publish<P>(queue, run)) return true;
    if (pauses == max_pauses) return false;
    P::pause();
  }
}

// Waits for credit, calling when_full() -> uint32_t whenever there is none: it may drain this queue, and returns
// how many completions that gave. A run of 0 tickets after `max_pauses` pauses.
template <class P, class WhenFull>
BAM_HD TicketRun reserve(const QueuePairState& queue, uint32_t wanted, uint64_t max_pauses, WhenFull&& when_full) {
  for (uint64_t pauses = 0;;) {
    TicketRun run = try_reserve<P>(queue, wanted);
    if (run.count != 0 || wanted == 0) return run;
    if (when_full() != 0) continue;
    if (pauses++ == max_pauses) return run;
    P::pause();
  }
}

// Commands between reservation and drain, at some recent moment.
template <class P>
BAM_HD uint32_t outstanding(const QueuePairState& queue) {
  uint64_t done = typename P::template Atomic<uint64_t>(queue.words->completed).load(P::relaxed);
  uint64_t first = typename P::template Atomic<uint64_t>(queue.words->reserved).load(P::relaxed);
  return static_cast<uint32_t>(first - done);
}

// ---- drainer; a warp may give each lane one k

// Phase bit of the k-th completion: 1 in the first round of the queue, then 0, then 1 ...
BAM_HD inline uint16_t phase_of(const QueuePairState& queue, uint64_t k) { return (k & queue.depth) == 0 ? 1 : 0; }

// The half of the k-th completion that holds command id and status, if it was posted.
template <class P>
BAM_HD bool poll_completion(const QueuePairState& queue, uint64_t k, Completion& completion) {
  // acquire: pairs with the release in post_completion(): the other half, and the bytes read, are there
  uint64_t high = typename P::template System<uint64_t>(queue.cq[slot_of(queue, k)].high).load(P::acquire);
  if ((high >> 48 & kPhaseBit) != phase_of(queue, k)) return false;
  Cqe cqe = unpack_cqe({0, high});
  completion = {cqe.cid, cqe.status, 0, 0};
  return true;
}

// The other half. Apart, because a GPU reads it over PCIe and needs it of failed commands alone.
template <class P>
BAM_HD void read_details(const QueuePairState& queue, uint64_t k, Completion& completion) {
  uint64_t low = typename P::template System<uint64_t>(queue.cq[slot_of(queue, k)].low).load(P::relaxed);
  Cqe cqe = unpack_cqe({low, 0});
  completion.dw0 = cqe.dw0;
  completion.dw1 = cqe.dw1;
}

// Copies the k-th completion out if it was posted.
template <class P>
BAM_HD bool read_completion(const QueuePairState& queue, uint64_t k, Completion& completion) {
  if (!poll_completion<P>(queue, k, completion)) return false;
  read_details<P>(queue, k, completion);
  return true;
}

// The k-th completion was used; its command id is free, to be found once its credit returns.
BAM_HD inline void recycle_cid(const QueuePairState& queue, uint64_t k, uint16_t cid) {
  queue.free_cids[slot_of(queue, k)] = cid;
}

// Every completion before `completed` was read and its command id recycled.
template <class P>
BAM_HD void return_credit(const QueuePairState& queue, uint64_t completed) {
  // release: pairs with the acquire in can_post(), so no entry is overwritten while it is read. Before the credit,
  // so the controller, which learns of new commands by way of the credit, knows of the room for them.
  typename P::template System<uint32_t>(*queue.cq_doorbell).store(slot_of(queue, completed), P::release);
  // release: pairs with the acquire in try_reserve()
  typename P::template Atomic<uint64_t>(queue.words->completed).store(completed, P::release);
}

template <class P>
BAM_HD bool try_lock_drain(const QueuePairState& queue) {
  uint32_t expected = 0;
  // acquire: pairs with the release in unlock_drain()
  return typename P::template Atomic<uint32_t>(queue.words->drain_lock)
      .compare_exchange_strong(expected, 1, P::acquire, P::relaxed);
}

template <class P>
BAM_HD void unlock_drain(const QueuePairState& queue) {
  // release: pairs with the acquire in try_lock_drain()
  typename P::template Atomic<uint32_t>(queue.words->drain_lock).store(0, P::release);
}

// Drains up to `most` completions unless somebody else is draining: sink(const Completion&) for each, in the order
// they were posted and before its credit and command id return, then one CQ doorbell write. Returns how many.
// Never waits; who waits for something calls it again.
template <class P, class Sink>
BAM_HD uint32_t try_drain(const QueuePairState& queue, uint32_t most, Sink&& sink) {
  if (!try_lock_drain<P>(queue)) return 0;
  uint64_t first = typename P::template Atomic<uint64_t>(queue.words->completed).load(P::relaxed);
  uint32_t count = 0;
  Completion completion;
  while (count < most && read_completion<P>(queue, first + count, completion)) {
    sink(static_cast<const Completion&>(completion));
    recycle_cid(queue, first + count, completion.cid);
    count++;
  }
  if (count != 0) return_credit<P>(queue, first + count);
  unlock_drain<P>(queue);
  return count;
}

// ---- controller

// The controller's own place in a queue pair; all zero at the start.
struct ControllerCursor {
  uint64_t fetched;
  uint64_t posted;
};

constexpr uint32_t kInvalidDoorbell = ~uint32_t{0};

// Commands published and not yet fetched; kInvalidDoorbell when the tail is no slot of the queue.
template <class P>
BAM_HD uint32_t commands_waiting(const QueuePairState& queue, const ControllerCursor& cursor) {
  // acquire: pairs with the release in try_publish()
  uint32_t tail = typename P::template System<uint32_t>(*queue.sq_doorbell).load(P::acquire);
  return tail < queue.depth ? slot_of(queue, tail - cursor.fetched) : kInvalidDoorbell;
}

// The next command; only after commands_waiting() said there is one.
BAM_HD inline Sqe fetch_command(const QueuePairState& queue, ControllerCursor& cursor) {
  return queue.sq[slot_of(queue, cursor.fetched++)];
}

// Whether the completion queue has room. With submitters that keep to their credit it always has.
template <class P>
BAM_HD bool can_post(const QueuePairState& queue, const ControllerCursor& cursor) {
  // acquire: pairs with the release of the CQ doorbell in return_credit()
  uint32_t head = typename P::template System<uint32_t>(*queue.cq_doorbell).load(P::acquire);
  return slot_of(queue, cursor.posted + 1) != head;
}

// Posts the completion of command `completion.cid`; only after can_post() said there is room. The entry is written
// half by half, the one with the phase last, so who sees the phase sees all of it.
template <class P>
BAM_HD void post_completion(const QueuePairState& queue, ControllerCursor& cursor, const Completion& completion) {
  uint16_t status = static_cast<uint16_t>((completion.status & ~kPhaseBit) | phase_of(queue, cursor.posted));
  CqeWords words = pack_cqe({completion.dw0, completion.dw1, static_cast<uint16_t>(slot_of(queue, cursor.fetched)),
                             static_cast<uint16_t>(queue.queue_id), completion.cid, status});
  CqeWords& entry = queue.cq[slot_of(queue, cursor.posted)];
  typename P::template System<uint64_t>(entry.low).store(words.low, P::relaxed);
  // release: pairs with the acquire in read_completion(); covers the bytes read, too
  typename P::template System<uint64_t>(entry.high).store(words.high, P::release);
  cursor.posted++;
}

}  // namespace bam
