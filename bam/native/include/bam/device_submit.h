// Looks up the pages of a flight's pieces and writes a command for each that must be read.
//
// A warp takes some pieces at a time and looks them up (device_look_up.h). When the commands are in the queues it
// copies what is there already, so pins of hits drop at once, and reads are under way meanwhile. Block 0 drains
// completions until all are submitted, so credit always comes back.
#pragma once

#include "bam/device_copy.h"
#include "bam/device_look_up.h"

namespace bam {

BAM_HD constexpr SourceKind source_kind(Outcome outcome) {
  switch (outcome) {
    case Outcome::hit: return SourceKind::hit;
    case Outcome::joined: return SourceKind::joined;
    case Outcome::claimed: return SourceKind::claimed;
    case Outcome::bypass: break;
  }
  return SourceKind::bypass;
}

// No command for this piece.
template <class P>
BAM_HD void give_up(const DeviceStore& store, uint64_t slot, uint64_t source, uint32_t error) {
  if (kind_of(source) == SourceKind::claimed) return lose_line<P>(store, slot, source, error);
  store.sources[slot] = make_source(SourceKind::lost, error);
}

// Tickets of one queue for up to `wanted` commands, for lane 0 of a warp; none when nothing comes back in time.
template <class P>
BAM_HD TicketRun reserve_in_time(const DeviceStore& store, Flight& flight, uint32_t queue, uint32_t wanted) {
  uint64_t begin = P::now_ns();
  for (bool said = false;; said = true) {
    TicketRun run = try_reserve<P>(store.queues[queue], wanted);
    if (run.count != 0 || P::now_ns() - begin > store.timeout_ns) return run;
    // Once: stores of all who wait, again and again, would keep the drain from the counters beside it.
    if (!said) typename P::template Atomic<uint32_t>(flight.wants_credit).store(1, P::relaxed);
    P::pause();
  }
}

// A warp writes the commands of the lanes that want one, and rings a doorbell for each run.
template <class P>
BAM_HD void submit_warp(const DeviceStore& store, Flight& flight, uint32_t queue, uint64_t page_id, uint64_t slot,
                        bool wants) {
  for (uint32_t wanting = P::ballot(wants); wanting != 0; wanting = P::ballot(wants)) {
    TicketRun run{0, 0};
    if (P::lane() == 0) {
      run = reserve_in_time<P>(store, flight, queue, count_bits(wanting));
      // before any of them can complete
      typename P::template Atomic<uint32_t>(flight.submitted).fetch_add(run.count, P::relaxed);
    }
    run = {P::shuffle(run.first, 0), P::shuffle(run.count, 0)};
    P::sync_warp();  // what lane 0 acquired with the credit, such as free command ids, holds for all lanes
    if (run.count == 0) {
      if (wants) give_up<P>(store, slot, store.sources[slot], kTimedOut);
      return;
    }
    uint32_t rank = count_bits(wanting & ((1u << P::lane()) - 1));
    if (wants && rank < run.count) {
      uint64_t ticket = run.first + rank;
      uint16_t cid = cid_of(store.queues[queue], ticket);
      store.owners[queue * store.queues[queue].depth + cid] = static_cast<uint32_t>(slot);
      write_sqe(store.queues[queue], ticket, page_command(store, cid, page_id, slot));
      wants = false;
    }
    P::sync_warp();  // the other lanes' entries are part of the release in publish()
    // Without a bound: who is waited for runs, and waits for nobody but its own predecessors.
    if (P::lane() == 0) publish<P>(store.queues[queue], run, ~uint64_t{0});
    queue = queue + 1 == store.n_queues ? 0 : queue + 1;
  }
}

// What a warp counts for its flight.
struct WarpCounts {
  uint32_t looked_up = 0, hits = 0, joins = 0, claims = 0, bypasses = 0, constant_rows = 0, left = 0;
};

template <class P>
BAM_HD void add_counts(Flight& flight, const WarpCounts& counts) {
  auto add = [](uint32_t& counter, uint32_t amount) {
    if (amount != 0) typename P::template Atomic<uint32_t>(counter).fetch_add(amount, P::relaxed);
  };
  add(flight.hits, counts.hits);
  add(flight.joins, counts.joins);
  add(flight.claims, counts.claims);
  add(flight.bypasses, counts.bypasses);
  add(flight.constant_rows, counts.constant_rows);
  add(flight.left, counts.left);
  add(flight.looked_up, counts.looked_up);
}

// A warp copies the pieces whose bytes are there, and gives the pins of hits back.
template <class P>
BAM_HD void copy_present(const DeviceStore& store, const RowBatch& batch, const Piece& piece, const Acquired& got,
                         bool hit) {
  uint64_t from = reinterpret_cast<uint64_t>(piece.constant);
  if (hit) from = reinterpret_cast<uint64_t>(line_bytes<P>(store, got.line_id) + piece.in_page);
  uint32_t length = from != 0 ? piece.length : 0;
  if (P::ballot(length != 0) == 0) return;
  P::sync_warp();  // bytes of a line that a lane acquired are copied by all
  copy_pieces<P, false>(reinterpret_cast<uint64_t>(piece.out), from, length, false, pieces_per_warp(batch),
                    segment_shift(store, batch));
  P::sync_warp();  // all lanes have read the line
  if (hit) unpin<P>(store.cache.lines[got.line_id]);
}

// A warp looks up some pieces, submits their commands, and copies what is there.
template <class P>
BAM_HD void submit_pieces(const DeviceStore& store, const RowBatch& batch, uint32_t begin, uint32_t queue, bool alone,
                          WarpCounts& counts) {
  Flight& flight = store.flights[batch.flight];
  uint32_t number = begin + P::lane();
  uint64_t slot = uint64_t{batch.flight} * store.slots_per_flight + number;
  bool exists = P::lane() < pieces_per_warp(batch) && number < batch.n_pieces(), possible = flight.stuck == 0;
  Piece piece{};
  if (exists) piece = piece_of(batch, store.page_shift, number);
  bool wanted = piece.length != 0 && piece.in_range && piece.constant == nullptr;
  uint64_t next_use = kNever;
  if (batch.next_use != nullptr && wanted) next_use = batch.next_use[batch.first_row + row_of(batch, number)];
  bool shared = batch.next_use != nullptr && batch.pages_per_row > 1 && orders_by_use(store.cache.policy);
  if (shared) next_use = latest_use<P>(piece.page_id, next_use, wanted);
  Acquired got{Outcome::bypass, 0};
  if (store.cache.n_sets != 0) got = look_up<P>(store.cache, piece.page_id, next_use, wanted && possible, alone);
  bool reads = wanted && possible && (got.outcome == Outcome::claimed || got.outcome == Outcome::bypass);
  bool hit = wanted && got.outcome == Outcome::hit;
  if (exists) {
    uint64_t source = wanted ? make_source(source_kind(got.outcome), got.line_id) : 0;
    SourceKind kept = piece.resident ? SourceKind::resident : SourceKind::constant;
    if (piece.constant != nullptr) source = make_source(kept, 0);
    store.sources[slot] = hit || piece.constant != nullptr ? source | kCopied : source;
    if (reads) store.results[slot] = kPending;
    if (piece.length != 0 && !piece.in_range) give_up<P>(store, slot, 0, kOutOfRange);
    if (wanted && !possible) give_up<P>(store, slot, 0, kTimedOut);
  }
  counts.looked_up += count_bits(P::ballot(exists));
  counts.hits += count_bits(P::ballot(hit));
  if (P::ballot(exists && !hit) != 0) {
    uint32_t place_in_row = number - row_of(batch, number) * batch.pages_per_row;
    counts.joins += count_bits(P::ballot(wanted && got.outcome == Outcome::joined));
    counts.claims += count_bits(P::ballot(reads && got.outcome == Outcome::claimed));
    counts.bypasses += count_bits(P::ballot(reads && got.outcome == Outcome::bypass));
    counts.constant_rows += count_bits(P::ballot(piece.constant != nullptr && place_in_row == 0));
    counts.left += count_bits(P::ballot(piece.length != 0 && !hit && piece.constant == nullptr));
  }
  submit_warp<P>(store, flight, queue, piece.page_id, slot, reads);
  copy_present<P>(store, batch, piece, got, hit);
}

// Kernel of at least two blocks.
template <class P>
BAM_HD void submit_rows(const DeviceStore& store, const RowBatch& batch) {
  Flight& flight = store.flights[batch.flight];
  uint32_t n_pieces = batch.n_pieces();
  if (P::block() == 0) {
    // Not before there may be completions: looking for them is a read over PCIe.
    auto nothing_to_drain = [&] {
      return load_counter<P>(flight.looked_up) != n_pieces && load_counter<P>(flight.submitted) == 0 &&
             load_counter<P>(flight.wants_credit) == 0;
    };
    while (P::any_in_block(P::thread() == 0 && nothing_to_drain())) P::pause();
    drain_until<P>(store, ~uint64_t{0}, [&] { return load_counter<P>(flight.looked_up) == n_pieces; });
    return;
  }
  uint32_t warps_per_block = P::threads() / kWarp, n_warps = (P::blocks() - 1) * warps_per_block;
  uint32_t warp = (P::block() - 1) * warps_per_block + P::thread() / kWarp, queue = warp % store.n_queues;
  WarpCounts counts;
  uint32_t share = pieces_per_warp(batch);
  for (uint64_t begin = uint64_t{warp} * share; begin < n_pieces; begin += uint64_t{n_warps} * share)
    submit_pieces<P>(store, batch, static_cast<uint32_t>(begin), queue, n_warps == 1, counts);
  if (P::lane() == 0) add_counts<P>(flight, counts);
}

}  // namespace bam
