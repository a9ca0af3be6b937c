// What a loader tells the store of batches to come, and what it asks of those that were read.
#pragma once

#include "bam/device_rows.h"

namespace bam {

// Where rows of one array came from, and what looking their pages up has found.
struct PartCounts {
  uint32_t rows_resident, rows_constant, rows_hit, rows_joined, rows_read;
  uint32_t pages_hit, pages_joined, pages_claimed, pages_bypassed;
  uint32_t reserved[3];
};
static_assert(sizeof(PartCounts) == 48, "ABI");
constexpr uint32_t kPartCounters = sizeof(PartCounts) / sizeof(uint32_t);

// Number of pieces of each kind among those of a row.
struct RowKinds {
  uint32_t resident = 0, constant = 0, hit = 0, joined = 0, claimed = 0, bypassed = 0;
};

BAM_HD inline RowKinds kinds_of_row(const DeviceStore& store, const RowBatch& batch, uint32_t row) {
  RowKinds found;
  uint64_t first = uint64_t{batch.flight} * store.slots_per_flight + uint64_t{row} * batch.pages_per_row;
  for (uint32_t k = 0; k < batch.pages_per_row; k++) {
    switch (kind_of(store.sources[first + k])) {
      case SourceKind::none: break;
      case SourceKind::resident: found.resident++; break;
      case SourceKind::constant: found.constant++; break;
      case SourceKind::hit: found.hit++; break;
      case SourceKind::joined: found.joined++; break;
      case SourceKind::claimed: found.claimed++; break;
      case SourceKind::bypass:
      case SourceKind::lost: found.bypassed++; break;
    }
  }
  return found;
}

// Adds each lane's amount to a counter of its part; lanes of one part do so together.
template <class P>
BAM_HD void add_by_part(PartCounts* counts, uint32_t part, uint32_t peers, uint32_t counter, uint32_t amount) {
  // amounts are small: bit by bit, each a ballot
  uint32_t sum = 0;
  for (uint32_t bit = 0; bit < 32; bit++) {
    if (P::ballot(amount >> bit != 0) == 0) break;
    sum += count_bits(P::ballot((amount >> bit & 1) != 0) & peers) << bit;
  }
  if (sum == 0 || lowest_bit(peers) != P::lane()) return;
  uint32_t* words = reinterpret_cast<uint32_t*>(counts + part);
  typename P::template Atomic<uint32_t>(words[counter]).fetch_add(sum, P::relaxed);
}

// Kernel, between submit_rows and the flight's next use: adds to `counts`, one for each part of the batch.
template <class P>
BAM_HD void count_rows(const DeviceStore& store, const RowBatch& batch, PartCounts* counts) {
  uint32_t step = P::blocks() * P::threads(), first = P::block() * P::threads() + P::thread();
  for (uint32_t begin = first - P::lane(); begin < batch.n_rows; begin += step) {  // whole warps stay together
    uint32_t row = begin + P::lane();
    bool exists = row < batch.n_rows;
    RowKinds kinds;
    uint32_t part = 0;
    if (exists) {
      kinds = kinds_of_row(store, batch, row);
      part = part_number(batch, batch.first_row + row);
    }
    uint32_t peers = P::match(~0u, exists ? part : ~0u);
    bool read = kinds.claimed + kinds.bypassed != 0, joined = !read && kinds.joined != 0;
    bool hit = !read && !joined && kinds.hit != 0;
    uint32_t amounts[] = {kinds.resident != 0, kinds.constant != 0, hit, joined, read,
                          kinds.hit, kinds.joined, kinds.claimed, kinds.bypassed};
    for (uint32_t i = 0; i < sizeof amounts / sizeof amounts[0]; i++)
      add_by_part<P>(counts, part, peers, i, exists ? amounts[i] : 0);
  }
}

// Kernel: all pages of the batch's rows, but for constant ones, will be used at `next_use`.
template <class P>
BAM_HD void note_uses(const DeviceStore& store, const RowBatch& batch, uint64_t next_use) {
  uint64_t step = uint64_t{P::blocks()} * P::threads(), n = uint64_t{batch.n_rows} * batch.pages_per_row;
  for (uint64_t i = uint64_t{P::block()} * P::threads() + P::thread(); i < n; i += step) {
    Piece piece = piece_of(batch, store.page_shift, static_cast<uint32_t>(i));
    bool stored = piece.length != 0 && piece.in_range && piece.constant == nullptr;
    if (stored) note_use<P>(store.cache, piece.page_id, next_use);
  }
}

// Kernel: forget_uses() by many threads.
template <class P>
BAM_HD void forget_all_uses(const CacheState& cache, uint64_t horizon, uint64_t instead) {
  if (!orders_by_use(cache.policy)) return;
  uint64_t step = uint64_t{P::blocks()} * P::threads(), n = cache.n_sets * cache.ways;
  for (uint64_t line = uint64_t{P::block()} * P::threads() + P::thread(); line < n; line += step)
    forget_use<P>(cache, line, horizon, instead);
}

}  // namespace bam
