// Copies between staging, lines, constant rows and outputs, by whole warps. Staging is read over PCIe once, with 16-byte
// loads.
#pragma once

#include "bam/device_rows.h"

namespace bam {

struct alignas(16) Chunk {
  uint64_t low, high;
};

// Copies, by a whole warp.
template <class P, class Unit>
BAM_HD void copy_units(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  constexpr uint32_t kUnits = sizeof(Unit) == 16 ? 4 : 2;  // loads in flight of one lane
  const Unit* source = reinterpret_cast<const Unit*>(from);
  Unit* target = reinterpret_cast<Unit*>(to);
  uint32_t n = bytes / sizeof(Unit), lane = P::lane();
  BAM_NO_UNROLL for (uint32_t begin = 0; begin < n; begin += kUnits * kWarp) {
    Unit units[kUnits];
    BAM_UNROLL for (uint32_t i = 0; i < kUnits; i++) {
      uint32_t at = begin + i * kWarp + lane;
      if (at < n) units[i] = P::load_fresh(source + at);
    }
    BAM_UNROLL for (uint32_t i = 0; i < kUnits; i++) {
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

// A piece whose place, in memory or in its page, is no multiple of 16.
template <class P>
BAM_HD BAM_RARE void copy_uneven(uint8_t* to, const uint8_t* from, uint32_t bytes) {
  switch (copy_unit(to, from, bytes)) {
    case 16: return copy_units<P, Chunk>(to, from, bytes);
    case 8: return copy_units<P, uint64_t>(to, from, bytes);
    case 4: return copy_units<P, uint32_t>(to, from, bytes);
    case 2: return copy_units<P, uint16_t>(to, from, bytes);
    default: return copy_units<P, uint8_t>(to, from, bytes);
  }
}

// How the read into a flight's slot ended. Of a flight that is stuck, results may still change: the completion may come
// any time, to a kernel of another stream.
template <class P>
BAM_HD ReadResult result_in(const DeviceStore& store, const Flight& flight, uint64_t slot) {
  if (flight.stuck == 0) return store.results[slot];
  // acquire: pairs with the release in note_completion(), so that the bytes are there with a result that says so
  return typename P::template Atomic<ReadResult>(store.results[slot]).load(P::acquire);
}

// Pieces a warp takes at a time. Few when they are long, so that all warps finish together; more where each has several
// turns anyway, for looking up takes as long for few. reads.py makes the grid for it.
constexpr uint32_t kManyPieces = 1u << 16;
BAM_HD constexpr uint32_t pieces_per_warp(const RowBatch& batch) {
  if (batch.row_bytes <= 2048) return kWarp;
  return batch.n_pieces() < kManyPieces ? 8 : 16;
}

constexpr uint32_t kSegmentBytes = kWarp * sizeof(Chunk);

// log2 of how many segments the longest piece of a batch has, rounded up.
BAM_HD constexpr uint32_t segment_shift(const DeviceStore& store, const RowBatch& batch) {
  uint32_t page_bytes = 1u << store.page_shift, shift = 0;
  uint32_t longest = batch.row_bytes < page_bytes ? batch.row_bytes : page_bytes;
  while ((kSegmentBytes << shift) < longest) shift++;
  return shift;
}

// What a warp copies: by lane, for the first `n_lanes` of them (8, 16 or 32); addresses and lengths are multiples of 16.
struct WarpCopy {
  uint64_t to, from;
  uint32_t length;  // 0: nothing
  uint32_t n_lanes;
  uint32_t shift;   // log2 of the segments of the longest piece
};

template <class P, bool fresh>
BAM_HD Chunk load_chunk(uint64_t from) {
  const Chunk* source = reinterpret_cast<const Chunk*>(from);
  if constexpr (fresh) return P::load_fresh(source);
  else return P::load_once(source);
}

constexpr uint32_t kTogether = 8;  // loads in flight of one lane

// Pieces of many segments, one after the other.
template <class P, bool fresh>
BAM_HD void copy_long(const WarpCopy& copy) {
  uint32_t mine = P::lane() * static_cast<uint32_t>(sizeof(Chunk));
  BAM_NO_UNROLL for (uint32_t left = P::ballot(copy.length != 0); left != 0; left &= left - 1) {
    uint32_t piece = lowest_bit(left), length = P::shuffle(copy.length, piece);
    uint64_t from = P::shuffle(copy.from, piece) + mine, to = P::shuffle(copy.to, piece) + mine;
    BAM_NO_UNROLL for (uint32_t begin = 0; begin < length; begin += kTogether * kSegmentBytes) {
      Chunk chunks[kTogether];
      BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++)
        if (begin + i * kSegmentBytes + mine < length) chunks[i] = load_chunk<P, fresh>(from + begin + i * kSegmentBytes);
      BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++)
        if (begin + i * kSegmentBytes + mine < length)
          P::store_once(reinterpret_cast<Chunk*>(to + begin + i * kSegmentBytes), chunks[i]);
    }
  }
}

// Pieces of few segments, as many at a time as keep memory busy.
template <class P, bool fresh>
BAM_HD void copy_short(const WarpCopy& copy) {
  uint32_t n_segments = copy.n_lanes << copy.shift, mine = P::lane() * static_cast<uint32_t>(sizeof(Chunk));
  for (uint32_t first = 0; first < n_segments; first += kTogether) {
    Chunk chunks[kTogether];
    uint64_t targets[kTogether];  // 0: nothing
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      uint32_t piece = (first + i) >> copy.shift;
      uint32_t at = ((first + i) & ((1u << copy.shift) - 1)) * kSegmentBytes + mine;
      uint64_t from = P::shuffle(copy.from, piece) + at, to = P::shuffle(copy.to, piece) + at;
      targets[i] = at < P::shuffle(copy.length, piece) ? to : 0;
      if (targets[i] != 0) chunks[i] = load_chunk<P, fresh>(from);
    }
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++)
      if (targets[i] != 0) P::store_once(reinterpret_cast<Chunk*>(targets[i]), chunks[i]);
  }
}

// Pieces that are one whole segment each, such as rows of 512 bytes.
template <class P, bool fresh>
BAM_HD void copy_segments(const WarpCopy& copy) {
  uint32_t mine = P::lane() * static_cast<uint32_t>(sizeof(Chunk));
  BAM_NO_UNROLL for (uint32_t first = 0; first < copy.n_lanes; first += kTogether) {
    Chunk chunks[kTogether];
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++)
      chunks[i] = load_chunk<P, fresh>(P::shuffle(copy.from, first + i) + mine);
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++)
      P::store_once(reinterpret_cast<Chunk*>(P::shuffle(copy.to, first + i) + mine), chunks[i]);
  }
}

template <class P, bool fresh>
BAM_HD void copy_even(const WarpCopy& copy) {
  if (P::ballot(copy.length != kSegmentBytes && P::lane() < copy.n_lanes) == 0) copy_segments<P, fresh>(copy);
  else if (kTogether <= 1u << copy.shift) copy_long<P, fresh>(copy);
  else copy_short<P, fresh>(copy);
}

// Copies the pieces of the first `n_lanes` lanes by the whole warp: 16 bytes a lane and segment.
// `fresh`: from memory that the host writes, which pieces can be if `may_be_fresh`.
template <class P, bool may_be_fresh>
BAM_HD void copy_pieces(uint64_t to, uint64_t from, uint32_t length, bool fresh, uint32_t n_lanes, uint32_t shift) {
  bool even = ((to | from | length) & (sizeof(Chunk) - 1)) == 0;
  uint32_t uneven = P::ballot(!even && length != 0);
  WarpCopy copy{to, from, even ? length : 0, n_lanes, shift};
  if (may_be_fresh && P::ballot(fresh) != 0) copy_even<P, may_be_fresh>(copy);
  else copy_even<P, false>(copy);
  for (; uneven != 0; uneven &= uneven - 1) {
    uint32_t lane = lowest_bit(uneven);
    copy_uneven<P>(reinterpret_cast<uint8_t*>(P::shuffle(to, lane)),
                   reinterpret_cast<const uint8_t*>(P::shuffle(from, lane)), P::shuffle(length, lane));
  }
}

}  // namespace bam
