// Queue pairs with one bug each. The explorer must find every one of them; explore.cc fails when it does not.
#pragma once

#include "planted_cache.h"
#include "queue_model.h"

namespace model {

// Rings without waiting for earlier runs.
struct PublishOutOfOrder : RealQueue {
  static bool try_publish(const QueuePairState& queue, TicketRun run) {
    uint64_t next = run.first + run.count;
    P::System<uint32_t>(*queue.sq_doorbell).store(bam::slot_of(queue, next), P::release);
    P::Atomic<uint64_t>(queue.words->published).fetch_add(run.count, P::acq_rel);
    return true;
  }
};

// Waits for earlier runs, but lets later ones go before it has rung: their doorbell is overwritten by this older one.
struct LostDoorbell : RealQueue {
  static bool try_publish(const QueuePairState& queue, TicketRun run) {
    P::Atomic<uint64_t> published(queue.words->published);
    if (published.load(P::acquire) != run.first) return false;
    uint64_t next = run.first + run.count;
    published.store(next, P::release);
    P::System<uint32_t>(*queue.sq_doorbell).store(bam::slot_of(queue, next), P::release);
    return true;
  }
};

// The command id follows from the ticket, as if commands completed in order.
struct CidFromTicket : RealQueue {
  static uint16_t cid_of(const QueuePairState& queue, uint64_t ticket) {
    return static_cast<uint16_t>(bam::slot_of(queue, ticket));
  }
};

// Returns credit for completions before it has used them and recycled their command ids.
struct CreditBeforeUse : RealQueue {
  template <class Sink>
  static uint32_t try_drain(const QueuePairState& queue, uint32_t most, Sink&& sink) {
    if (!bam::try_lock_drain<P>(queue)) return 0;
    uint64_t first = P::Atomic<uint64_t>(queue.words->completed).load(P::relaxed);
    uint32_t count = 0;
    Completion completions[kMaxDepth];
    while (count < most && bam::read_completion<P>(queue, first + count, completions[count])) count++;
    if (count != 0) bam::return_credit<P>(queue, first + count);
    for (uint32_t i = 0; i < count; i++) {
      sink(static_cast<const Completion&>(completions[i]));
      bam::recycle_cid(queue, first + i, completions[i].cid);
    }
    bam::unlock_drain<P>(queue);
    return count;
  }
};

// Returns credit before the controller can know of the room in the completion queue.
struct RoomAfterCredit : RealQueue {
  template <class Sink>
  static uint32_t try_drain(const QueuePairState& queue, uint32_t most, Sink&& sink) {
    if (!bam::try_lock_drain<P>(queue)) return 0;
    uint64_t first = P::Atomic<uint64_t>(queue.words->completed).load(P::relaxed);
    uint32_t count = 0;
    for (Completion done; count < most && bam::read_completion<P>(queue, first + count, done); count++) {
      sink(static_cast<const Completion&>(done));
      bam::recycle_cid(queue, first + count, done.cid);
    }
    if (count != 0) P::Atomic<uint64_t>(queue.words->completed).store(first + count, P::release);
    if (count != 0) P::System<uint32_t>(*queue.cq_doorbell).store(bam::slot_of(queue, first + count), P::release);
    bam::unlock_drain<P>(queue);
    return count;
  }
};

// The half of a completion with the phase is written first.
struct PhaseFirst : RealQueue {
  static void post_completion(const QueuePairState& queue, bam::ControllerCursor& cursor, const Completion& done) {
    uint16_t status = static_cast<uint16_t>((done.status & ~bam::kPhaseBit) | bam::phase_of(queue, cursor.posted));
    bam::CqeWords words = bam::pack_cqe({done.dw0, done.dw1, 0, 0, done.cid, status});
    bam::CqeWords& entry = queue.cq[bam::slot_of(queue, cursor.posted)];
    P::System<uint64_t>(entry.high).store(words.high, P::release);
    P::System<uint64_t>(entry.low).store(words.low, P::release);
    cursor.posted++;
  }
};

// Two drainers at once.
struct DrainWithoutLock : RealQueue {
  template <class Sink>
  static uint32_t try_drain(const QueuePairState& queue, uint32_t most, Sink&& sink) {
    uint64_t first = P::Atomic<uint64_t>(queue.words->completed).load(P::acquire);
    uint32_t count = 0;
    Completion completion;
    while (count < most && bam::read_completion<P>(queue, first + count, completion)) {
      sink(static_cast<const Completion&>(completion));
      bam::recycle_cid(queue, first + count, completion.cid);
      count++;
    }
    if (count != 0) bam::return_credit<P>(queue, first + count);
    return count;
  }
};

struct RelaxedDoorbell : RealQueue {
  static bool try_publish(const QueuePairState& queue, TicketRun run) {
    return bam::try_publish<RelaxedReleasePlatform>(queue, run);
  }
};

struct RelaxedCompletion : RealQueue {
  static void post_completion(const QueuePairState& queue, bam::ControllerCursor& cursor, const Completion& done) {
    bam::post_completion<RelaxedReleasePlatform>(queue, cursor, done);
  }
};

}  // namespace model
