// Fills the lines that a flight claimed, and copies rows to the output.
//
// Two kernels: a piece that joined a read of its own flight finds the bytes in the line, and no warp has to wait for
// another of the same launch, which might not have started. Staging is read over PCIe once, with 16-byte loads.
#pragma once

#include "bam/device_rows.h"

namespace bam {

struct alignas(16) Chunk {
  uint64_t low, high;
};

// `fresh`: from memory that the host writes.
template <class P, bool fresh, class Unit>
BAM_HD Unit load_unit(const Unit* from) {
  if constexpr (fresh) return P::load_fresh(from);
  else return P::load_once(from);
}

// Copies, by a whole warp.
template <class P, bool fresh, class Unit>
BAM_HD void copy_units(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  constexpr uint32_t kTogether = sizeof(Unit) == 16 ? 8 : 2;  // loads in flight of one lane
  const Unit* source = reinterpret_cast<const Unit*>(from);
  Unit* target = reinterpret_cast<Unit*>(to);
  uint32_t n = bytes / sizeof(Unit), lane = P::lane();
  for (uint32_t begin = 0; begin < n; begin += kTogether * kWarp) {
    Unit units[kTogether];
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      uint32_t at = begin + i * kWarp + lane;
      if (at < n) units[i] = load_unit<P, fresh>(source + at);
    }
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      uint32_t at = begin + i * kWarp + lane;
      if (at < n) target[at] = units[i];
    }
  }
}

// The largest unit of a copy that fits both addresses and the length.
BAM_HD inline uint32_t copy_unit(const uint8_t* to, const uint8_t* from, uint32_t bytes) {
  uint64_t bits = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from) | bytes | 16;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

template <class P, bool fresh>
BAM_HD void copy_piece(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  switch (copy_unit(to, from, bytes)) {
    case 16: return copy_units<P, fresh, Chunk>(to, from, bytes);
    case 8: return copy_units<P, fresh, uint64_t>(to, from, bytes);
    case 4: return copy_units<P, fresh, uint32_t>(to, from, bytes);
    case 2: return copy_units<P, fresh, uint16_t>(to, from, bytes);
    default: return copy_units<P, fresh, uint8_t>(to, from, bytes);
  }
}

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
    ReadResult result = mine < n_pieces ? store.results[first_slot + mine] : 0;
    bool claimed = kind_of(source) == SourceKind::claimed;
    for (uint32_t left = P::ballot(claimed && result == 0); left != 0; left &= left - 1) {
      uint32_t lane = lowest_bit(left);
      copy_piece<P, true>(line_bytes<P>(store, line_of(P::shuffle(source, lane))),
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
    case SourceKind::constant: return piece.constant;
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

// Copies the lanes' pieces, each by the whole warp. Pieces of at most 512 bytes go four at a time, so that four loads
// of each lane are in flight; longer ones have as many by themselves.
template <class P, bool fresh>
BAM_HD void copy_pieces(uint64_t to, uint64_t from, uint32_t length) {
  bool is_short = length <= kWarp * sizeof(Chunk) && ((to | from | length) & (sizeof(Chunk) - 1)) == 0;
  uint32_t all_short = P::ballot(is_short);
  for (uint32_t first = 0; first < kWarp; first += 4) {
    if ((all_short >> first & 15) != 15) {
      for (uint32_t i = first; i < first + 4; i++)
        copy_piece<P, fresh>(reinterpret_cast<uint8_t*>(P::shuffle(to, i)),
                             reinterpret_cast<const uint8_t*>(P::shuffle(from, i)), P::shuffle(length, i));
      continue;
    }
    Chunk chunks[4];
    Chunk* targets[4];
    BAM_UNROLL for (uint32_t i = 0; i < 4; i++) {
      const Chunk* source = reinterpret_cast<const Chunk*>(P::shuffle(from, first + i)) + P::lane();
      targets[i] = reinterpret_cast<Chunk*>(P::shuffle(to, first + i)) + P::lane();
      if (P::lane() * sizeof(Chunk) >= P::shuffle(length, first + i)) targets[i] = nullptr;
      if (targets[i] != nullptr) chunks[i] = load_unit<P, fresh>(source);
    }
    BAM_UNROLL for (uint32_t i = 0; i < 4; i++)
      if (targets[i] != nullptr) *targets[i] = chunks[i];
  }
}

// A warp copies 32 pieces and gives their pins back.
template <class P>
BAM_HD void gather_pieces(const DeviceStore& store, const RowBatch& batch, uint32_t begin) {
  Flight& flight = store.flights[batch.flight];
  uint32_t number = begin + P::lane();
  uint64_t slot = uint64_t{batch.flight} * store.slots_per_flight + number;
  uint64_t source = number < batch.n_pieces() ? store.sources[slot] : 0;
  SourceKind kind = kind_of(source);
  Piece piece{};
  ReadResult failure = 0;
  if (kind != SourceKind::none) {
    piece = piece_of(batch, store.page_shift, number);
    failure = failure_of<P>(store, source, kind == SourceKind::hit ? 0 : store.results[slot]);
  }
  uint64_t to = reinterpret_cast<uint64_t>(piece.out);
  uint64_t from = reinterpret_cast<uint64_t>(bytes_of<P>(store, source, slot, piece));
  uint32_t length = failure == 0 ? piece.length : 0;
  if (P::ballot(kind == SourceKind::bypass) != 0) copy_pieces<P, true>(to, from, length);
  else copy_pieces<P, false>(to, from, length);
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
  flight.looked_up = flight.gathered = 0;
  flight.hits = flight.joins = flight.claims = flight.bypasses = flight.constant_rows = 0;
  flight.first_failed = kNoPiece;
}

// Kernel.
template <class P>
BAM_HD void gather_rows(const DeviceStore& store, const RowBatch& batch, FlightReport* report) {
  Flight& flight = store.flights[batch.flight];
  uint32_t n_pieces = batch.n_pieces(), n_warps = P::blocks() * (P::threads() / kWarp);
  uint32_t warp = P::block() * (P::threads() / kWarp) + P::thread() / kWarp;
  for (uint64_t begin = uint64_t{warp} * kWarp; begin < n_pieces; begin += uint64_t{n_warps} * kWarp)
    gather_pieces<P>(store, batch, static_cast<uint32_t>(begin));
  P::any_in_block(false);  // every thread of the block is done
  if (P::thread() != 0) return;
  // acq_rel: pairs with itself in the other blocks, so the last one sees what all have noted
  uint32_t before = typename P::template Atomic<uint32_t>(flight.gathered).fetch_add(1, P::acq_rel);
  if (before + 1 == P::blocks()) report_flight(store, batch, *report);
}

}  // namespace bam
