// Fills the lines that a flight claimed, and copies the rows that had to be waited for to the output.
//
// Two kernels: a piece that joined a read of its own flight finds the bytes in the line, and no warp has to wait for
// another of the same launch, which might not have started.
#pragma once

#include "bam/device_copy.h"

namespace bam {

// Kernel: the pages that the flight read for lines go from staging to the lines.
template <class P>
BAM_HD void fill_lines(const DeviceStore& store, const RowBatch& batch) {
  Flight& flight = store.flights[batch.flight];
  if (flight.claims == 0) return;
  uint32_t n_pieces = batch.n_pieces(), n_warps = P::blocks() * (P::threads() / kWarp);
  uint32_t warp = P::block() * (P::threads() / kWarp) + P::thread() / kWarp;
  uint64_t first_slot = uint64_t{batch.flight} * store.slots_per_flight;
  for (uint64_t begin = uint64_t{warp} * kWarp; begin < n_pieces; begin += uint64_t{n_warps} * kWarp) {
    uint64_t mine = begin + P::lane();
    uint64_t source = mine < n_pieces ? store.sources[first_slot + mine] : 0;
    bool claimed = kind_of(source) == SourceKind::claimed;
    ReadResult result = claimed ? result_in<P>(store, flight, first_slot + mine) : 0;
    P::sync_warp();  // bytes that a lane acquired are copied by all
    for (uint32_t left = P::ballot(claimed && result == 0); left != 0; left &= left - 1) {
      uint32_t lane = lowest_bit(left);
      copy_units<P, Chunk>(line_bytes<P>(store, line_of(P::shuffle(source, lane))),
                           slot_bytes(store, first_slot + begin + lane), 1u << store.page_shift);
    }
    P::sync_warp();  // all lanes' bytes are part of the release in publish()
    if (!claimed) continue;
    if (result == 0) publish<P>(store.cache.lines[line_of(source)]);
    else lose_line<P>(store, first_slot + mine, source, result == kPending ? kTimedOut : result & 0xffffffffu);
  }
}

// Waits for a line that a kernel of another stream is reading; one of this store has been filled before.
template <class P>
BAM_HD LineState await_line(const DeviceStore& store, uint64_t line_id) {
  uint64_t begin = P::now_ns();
  for (;;) {
    LineState state = await_once<P>(store.cache.lines[line_id]);
    if (state != LineState::reading || P::now_ns() - begin > store.timeout_ns) return state;
    P::pause();
  }
}

// Why the bytes of a piece are not there; 0 when they are.
template <class P>
BAM_HD ReadResult failure_of(const DeviceStore& store, uint64_t source, ReadResult result) {
  switch (kind_of(source)) {
    case SourceKind::bypass: return result == kPending ? kTimedOut : result;
    // The result has more to say, unless its command was given up: then it may change at any time.
    case SourceKind::lost: return (result & 0xffffffffu) == line_of(source) ? result : line_of(source);
    case SourceKind::joined: break;
    default: return 0;
  }
  LineState state = await_line<P>(store, line_of(source));
  if (state == LineState::valid) return 0;
  return state == LineState::failed ? load_meta<P>(store.cache.metas[line_of(source)]) : kTimedOut;
}

template <class P>
BAM_HD const uint8_t* bytes_of(const DeviceStore& store, uint64_t source, uint64_t slot, const Piece& piece) {
  switch (kind_of(source)) {
    case SourceKind::constant:
    case SourceKind::resident: return piece.constant;
    case SourceKind::bypass: return slot_bytes(store, slot) + piece.in_page;
    case SourceKind::hit:
    case SourceKind::joined:
    case SourceKind::claimed: return line_bytes<P>(store, line_of(source)) + piece.in_page;
    default: return nullptr;
  }
}

BAM_HD constexpr bool holds_pin(SourceKind kind) {
  return kind == SourceKind::hit || kind == SourceKind::joined || kind == SourceKind::claimed;
}

// A warp copies some pieces and gives their pins back.
template <class P>
BAM_HD void gather_pieces(const DeviceStore& store, const RowBatch& batch, uint32_t begin) {
  Flight& flight = store.flights[batch.flight];
  uint32_t number = begin + P::lane(), n_lanes = pieces_per_warp(batch);
  uint64_t slot = uint64_t{batch.flight} * store.slots_per_flight + number;
  uint64_t source = P::lane() < n_lanes && number < batch.n_pieces() ? store.sources[slot] : 0;
  if ((source & kCopied) != 0) source = 0;
  if (P::ballot(source != 0) == 0) return;
  SourceKind kind = kind_of(source);
  Piece piece{};
  ReadResult failure = 0;
  if (kind != SourceKind::none) {
    piece = piece_of(batch, store.page_shift, number);
    failure = failure_of<P>(store, source, kind == SourceKind::hit ? 0 : result_in<P>(store, flight, slot));
  }
  uint64_t to = reinterpret_cast<uint64_t>(piece.out);
  uint64_t from = reinterpret_cast<uint64_t>(bytes_of<P>(store, source, slot, piece));
  uint32_t length = failure == 0 ? piece.length : 0;
  P::sync_warp();  // bytes that a lane acquired, of a line or a slot, are copied by all
  copy_pieces<P, true>(to, from, length, kind == SourceKind::bypass, n_lanes, segment_shift(store, batch));
  P::sync_warp();  // all lanes have read the line
  if (failure != 0) {
    store.results[slot] = failure;
    lower_to<P>(flight.first_failed, number);
  }
  if (holds_pin(kind)) unpin<P>(store.cache.lines[line_of(source)]);
}

// By the last thread that is at work for the flight: tells the host, and makes the flight ready for its next use.
BAM_HD inline void report_flight(const DeviceStore& store, const RowBatch& batch, FlightReport& report) {
  Flight& flight = store.flights[batch.flight];
  uint32_t failed = flight.first_failed;
  FlightReport found{};
  if (failed != kNoPiece) {
    found.result = store.results[uint64_t{batch.flight} * store.slots_per_flight + failed];
    // a completion that came too late has overwritten why, and must not pass for success
    if (found.result == 0 || found.result == kPending) found.result = kTimedOut;
    found.page_id = piece_of(batch, store.page_shift, failed).page_id;
    found.row = batch.first_row + failed / batch.pages_per_row;
  }
  found.submitted = flight.submitted;
  found.hits = flight.hits;
  found.joins = flight.joins;
  found.claims = flight.claims;
  found.bypasses = flight.bypasses;
  found.constant_rows = flight.constant_rows;
  report = found;
  // The commands of a stuck flight are still to come back, and are counted when they do.
  if (flight.stuck == 0) flight.submitted = flight.completed = 0;
  flight.looked_up = flight.gathered = flight.left = flight.wants_credit = 0;
  flight.hits = flight.joins = flight.claims = flight.bypasses = flight.constant_rows = 0;
  flight.first_failed = kNoPiece;
}

// Kernel.
template <class P>
BAM_HD void gather_rows(const DeviceStore& store, const RowBatch& batch, FlightReport* report) {
  Flight& flight = store.flights[batch.flight];
  uint32_t n_pieces = batch.n_pieces(), n_warps = P::blocks() * (P::threads() / kWarp);
  uint32_t warp = P::block() * (P::threads() / kWarp) + P::thread() / kWarp;
  uint32_t share = pieces_per_warp(batch);
  if (flight.left == 0) n_pieces = 0;  // submit_rows copied them all
  for (uint64_t begin = uint64_t{warp} * share; begin < n_pieces; begin += uint64_t{n_warps} * share)
    gather_pieces<P>(store, batch, static_cast<uint32_t>(begin));
  P::any_in_block(false);  // every thread of the block is done
  if (P::thread() != 0) return;
  // acq_rel: pairs with itself in the other blocks, so the last one sees what all have noted
  uint32_t before = typename P::template Atomic<uint32_t>(flight.gathered).fetch_add(1, P::acq_rel);
  if (before + 1 == P::blocks()) report_flight(store, batch, *report);
}

}  // namespace bam
