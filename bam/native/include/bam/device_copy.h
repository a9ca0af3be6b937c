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
  constexpr uint32_t kTogether = sizeof(Unit) == 16 ? 4 : 2;  // loads in flight of one lane
  const Unit* source = reinterpret_cast<const Unit*>(from);
  Unit* target = reinterpret_cast<Unit*>(to);
  uint32_t n = bytes / sizeof(Unit), lane = P::lane();
  BAM_NO_UNROLL for (uint32_t begin = 0; begin < n; begin += kTogether * kWarp) {
    Unit units[kTogether];
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      uint32_t at = begin + i * kWarp + lane;
      if (at < n) units[i] = P::load_fresh(source + at);
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

// Pieces a warp takes at a time. Few when they are long, so that all warps finish together. reads.py makes the grid
// for it.
BAM_HD constexpr uint32_t pieces_per_warp(const RowBatch& batch) { return batch.row_bytes > 2048 ? 8 : kWarp; }

constexpr uint32_t kSegmentBytes = kWarp * sizeof(Chunk);

// log2 of how many segments the longest piece of a batch has, rounded up.
BAM_HD constexpr uint32_t segment_shift(const DeviceStore& store, const RowBatch& batch) {
  uint32_t page_bytes = 1u << store.page_shift, shift = 0;
  uint32_t longest = batch.row_bytes < page_bytes ? batch.row_bytes : page_bytes;
  while ((kSegmentBytes << shift) < longest) shift++;
  return shift;
}

// Copies the pieces of the first `n_lanes` lanes (8 or 32) by the whole warp: 16 bytes a lane and segment, and so many
// segments together that memory is kept busy, whether pieces are short or long.
// `fresh`: from memory that the host writes. `kTogether`: loads in flight of one lane.
template <class P, bool fresh, uint32_t kTogether>
BAM_HD void copy_segments(uint64_t to, uint64_t from, uint32_t length, uint32_t n_lanes, uint32_t shift) {
  uint32_t n_segments = n_lanes << shift;
  auto place = [&](uint32_t segment) {
    return (segment & ((1u << shift) - 1)) * kSegmentBytes + P::lane() * static_cast<uint32_t>(sizeof(Chunk));
  };
  BAM_NO_UNROLL for (uint32_t first = 0; first < n_segments; first += kTogether) {
    Chunk chunks[kTogether];
    uint32_t copied = 0;
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      uint32_t piece = (first + i) >> shift, at = place(first + i);
      uint64_t bytes = P::shuffle(from, piece) + at;
      if (at < P::shuffle(length, piece)) {
        const Chunk* source = reinterpret_cast<const Chunk*>(bytes);
        if constexpr (fresh) chunks[i] = P::load_fresh(source);
        else chunks[i] = P::load_once(source);
        copied |= 1u << i;
      }
    }
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      uint64_t target = P::shuffle(to, (first + i) >> shift) + place(first + i);
      if ((copied >> i & 1) != 0) *reinterpret_cast<Chunk*>(target) = chunks[i];
    }
  }
}

template <class P, uint32_t kTogether>
BAM_HD void copy_pieces(uint64_t to, uint64_t from, uint32_t length, bool fresh, uint32_t n_lanes, uint32_t shift) {
  bool even = ((to | from | length) & (sizeof(Chunk) - 1)) == 0;
  uint32_t uneven = P::ballot(!even && length != 0), even_length = even ? length : 0;
  if (P::ballot(fresh) != 0) copy_segments<P, true, kTogether>(to, from, even_length, n_lanes, shift);
  else copy_segments<P, false, kTogether>(to, from, even_length, n_lanes, shift);
  for (; uneven != 0; uneven &= uneven - 1) {
    uint32_t lane = lowest_bit(uneven);
    copy_uneven<P>(reinterpret_cast<uint8_t*>(P::shuffle(to, lane)),
                   reinterpret_cast<const uint8_t*>(P::shuffle(from, lane)), P::shuffle(length, lane));
  }
}

}  // namespace bam
