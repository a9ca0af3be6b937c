// Reads that a kernel makes by itself and waits for, item by item: what array.cuh is made of.
//
// A thread that needs a page pins its line, or claims one, reads the page into a *lone slot* of staging memory and
// drains completions until its own has come. Threads of a warp that need the same page at the same time do so once.
// Nobody waits while holding what another waiter needs: who joined a read waits for its claimer, and a claimer for a
// free slot, for credit and for its read, all of which come back without it. A claimer may also be a gather, whose
// remaining kernels the host has launched (Reads.begin) and which need room on the GPU (DeviceView.before_kernel).
#pragma once

#include "bam/device_store.h"

namespace bam {

// An array as a kernel sees it; in the GPU's memory.
struct ArrayView {
  DeviceStore store;
  uint64_t first_byte;  // of the array, in the store
  uint64_t n_items;
};
static_assert(sizeof(ArrayView) == 224, "ABI");

enum class HeldKind : uint32_t {
  line,     // the page's bytes are in a pinned line
  claimed,  // they are in a slot, and a pinned line waits for them
  slot,     // they are in a slot alone
  none,     // they could not be read
};

// A page that a thread holds, and where its bytes are.
struct HeldPage {
  HeldKind kind;
  uint32_t slot;
  uint64_t line_id;
};

// Keeps the first failure of any thread for the host.
template <class P>
BAM_HD void note_failure(const DeviceStore& store, ReadResult result, uint64_t page_id) {
  uint64_t none = 0;
  typename P::template Atomic<uint64_t> first(store.failure[0]);
  if (first.compare_exchange_strong(none, result, P::relaxed, P::relaxed)) store.failure[1] = page_id;
}

// One thread drains a queue, for itself and for whoever else has commands in it.
template <class P>
BAM_HD uint32_t drain_alone(const DeviceStore& store, uint32_t queue) {
  return try_drain<P>(store.queues[queue], 8, [&](const Completion& completion) {
    uint32_t flight = note_completion<P>(store, queue, completion) / store.slots_per_flight;
    if (flight < store.n_flights) count_completed<P>(store, flight, 1);
  });
}

// A slot of the lone ones, all of which are beyond the flights'; kNoPiece when none gets free in time.
template <class P>
BAM_HD uint32_t take_lone_slot(const DeviceStore& store, uint64_t page_id, uint64_t begin) {
  uint32_t place = static_cast<uint32_t>(multiply_high(mix64(page_id ^ begin), store.n_lone_slots));
  uint32_t queue = place % store.n_queues;
  while (store.n_lone_slots != 0) {
    for (uint32_t step = 0; step < store.n_lone_slots; step++) {
      uint32_t free = 0;
      // acquire: pairs with the release in free_lone_slot(), so its last user has read the bytes
      if (typename P::template Atomic<uint32_t>(store.lone_slots[place])
              .compare_exchange_strong(free, 1, P::acquire, P::relaxed))
        return first_lone_slot(store) + place;
      place = place + 1 == store.n_lone_slots ? 0 : place + 1;
    }
    // Slots of reads that nobody waits for any more get free when somebody finds their completions.
    queue = queue + 1 == store.n_queues ? 0 : queue + 1;
    uint32_t found = drain_alone<P>(store, queue);
    if (P::now_ns() - begin > store.timeout_ns) break;
    if (found == 0) P::pause();
  }
  return kNoPiece;
}

// Reads a page into a lone slot and waits. kPending: it did not come back in time, and its completion frees the slot.
template <class P>
BAM_HD ReadResult read_alone(const DeviceStore& store, uint64_t page_id, uint32_t slot, uint64_t begin) {
  uint32_t queue = slot % store.n_queues;
  const QueuePairState pair = store.queues[queue];
  TicketRun run = try_reserve<P>(pair, 1);
  for (; run.count == 0; run = try_reserve<P>(pair, 1)) {
    if (drain_alone<P>(store, queue) == 0) P::pause();
    if (P::now_ns() - begin > store.timeout_ns) return kTimedOut;
  }
  typename P::template Atomic<ReadResult> result(store.results[slot]);
  result.store(kPending, P::relaxed);
  uint16_t cid = cid_of(pair, run.first);
  store.owners[queue * pair.depth + cid] = slot;
  write_sqe(pair, run.first, page_command(store, cid, page_id, slot));
  publish<P>(pair, run, ~uint64_t{0});
  for (;;) {
    // acquire: pairs with the release in note_completion(), whoever drained it
    ReadResult found = result.load(P::acquire);
    if (found != kPending) return found;
    if (P::now_ns() - begin > store.timeout_ns) {
      // acquire: as above, if it has come in this very moment
      if (result.compare_exchange_strong(found, kAbandoned, P::acquire, P::acquire)) return kPending;
      return found;
    }
    if (drain_alone<P>(store, queue) == 0) P::pause();
  }
}

template <class P>
BAM_HD HeldPage lose_page(const DeviceStore& store, const Acquired& got, uint64_t page_id, ReadResult why) {
  note_failure<P>(store, why, page_id);
  if (got.outcome == Outcome::claimed) fail_with<P>(store.cache, got.line_id, why & 0xffffffffu);
  if (got.outcome != Outcome::bypass) unpin<P>(store.cache.lines[got.line_id]);
  return {HeldKind::none, 0, 0};
}

// Gets the page for one thread, which gives it back with release_page().
template <class P>
BAM_HD HeldPage acquire_page(const DeviceStore& store, uint64_t page_id) {
  uint64_t begin = P::now_ns();
  Acquired got = acquire<P>(store.cache, page_id, kNever);
  if (got.outcome == Outcome::hit) return {HeldKind::line, 0, got.line_id};
  if (got.outcome == Outcome::joined) {
    LineState state = LineState::reading;
    while (state == LineState::reading && P::now_ns() - begin <= store.timeout_ns) {
      state = await_once<P>(store.cache.lines[got.line_id]);
      if (state == LineState::reading) P::pause();
    }
    if (state == LineState::valid) return {HeldKind::line, 0, got.line_id};
    bool failed = state == LineState::failed;
    return lose_page<P>(store, got, page_id, failed ? load_meta<P>(store.cache.metas[got.line_id]) : kTimedOut);
  }
  uint32_t slot = take_lone_slot<P>(store, page_id, begin);
  if (slot == kNoPiece) return lose_page<P>(store, got, page_id, kTimedOut);
  ReadResult result = read_alone<P>(store, page_id, slot, begin);
  if (result == 0) return {got.outcome == Outcome::claimed ? HeldKind::claimed : HeldKind::slot, slot, got.line_id};
  if (result == kPending) return lose_page<P>(store, got, page_id, kTimedOut);
  free_lone_slot<P>(store, slot);
  return lose_page<P>(store, got, page_id, result);
}

struct alignas(16) PageUnit {
  uint64_t low, high;
};

// The lanes in `peers`, this one among them, copy a claimed page to its line; `leader` acquired it.
template <class P>
BAM_HD void fill_line(const DeviceStore& store, HeldPage& held, uint32_t peers, uint32_t leader) {
  uint32_t rank = count_bits(peers & ((1u << P::lane()) - 1)), n_lanes = count_bits(peers);
  const PageUnit* from = reinterpret_cast<const PageUnit*>(slot_bytes(store, held.slot));
  PageUnit* to = reinterpret_cast<PageUnit*>(line_bytes<P>(store, held.line_id));
  uint32_t n_units = (1u << store.page_shift) / sizeof(PageUnit);
  for (uint32_t i = rank; i < n_units; i += n_lanes) to[i] = P::load_fresh(from + i);
  P::sync_warp(peers);  // all lanes' bytes are part of the release in publish()
  if (P::lane() == leader) {
    publish<P>(store.cache.lines[held.line_id]);
    free_lone_slot<P>(store, held.slot);
  }
  held.kind = HeldKind::line;
}

template <class P>
BAM_HD void release_page(const DeviceStore& store, const HeldPage& held) {
  if (held.kind == HeldKind::line) unpin<P>(store.cache.lines[held.line_id]);
  if (held.kind == HeldKind::slot) free_lone_slot<P>(store, held.slot);
}

// Item number `i`, which must be below n_items; T{} when it cannot be read, and the failure is noted.
// Items do not straddle pages: their size is a power of two and the array starts at a multiple of it.
template <class P, class T>
BAM_HD T read_item(const ArrayView& view, uint64_t i) {
  const DeviceStore& store = view.store;
  uint64_t byte = view.first_byte + i * sizeof(T), page_id = byte >> store.page_shift;
  uint32_t peers = P::match(P::converged(), page_id), leader = lowest_bit(peers);
  HeldPage held{};
  if (P::lane() == leader) held = acquire_page<P>(store, page_id);
  held.kind = static_cast<HeldKind>(P::shuffle_among(peers, static_cast<uint32_t>(held.kind), leader));
  held.slot = P::shuffle_among(peers, held.slot, leader);
  held.line_id = P::shuffle_among(peers, held.line_id, leader);
  P::sync_warp(peers);  // the page that the leader acquired is read by all; a shuffle orders no memory
  if (held.kind == HeldKind::claimed) fill_line<P>(store, held, peers, leader);
  T value{};
  if (held.kind != HeldKind::none) {
    bool in_line = held.kind == HeldKind::line;
    const uint8_t* page = in_line ? line_bytes<P>(store, held.line_id) : slot_bytes(store, held.slot);
    value = P::load_fresh(reinterpret_cast<const T*>(page + (byte & ((uint64_t{1} << store.page_shift) - 1))));
  }
  P::sync_warp(peers);  // all of them have read it
  if (P::lane() == leader) release_page<P>(store, held);
  return value;
}

}  // namespace bam
