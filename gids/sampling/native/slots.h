// The hash table of a mini-batch: node key -> local id, or the first edge that reached a new node.
//
// An entry is one 64-bit word, `key << local_bits | value`. Known nodes have their local id as value. A node
// that is new in this hop has `new_bit + position` of an edge that reached it; everyone who meets the key
// lowers the word to the smallest such position, so the outcome does not depend on who comes first.
// All accesses are relaxed: one word carries everything, and kernels are ordered by their launches.
#pragma once

#include "plan.h"

namespace gids {

constexpr uint64_t kEmpty = ~0ull;
constexpr uint32_t kNoSlot = 0xFFFFFFFFu;
constexpr int64_t kMaxProbes = 512;  // a table that is at most half full needs far fewer

BAM_HD inline uint64_t new_bit(const Plan& plan) { return 1ull << (plan.local_bits - 1); }

BAM_HD inline uint64_t entry_value(const Plan& plan, uint64_t entry) {
  return entry & ((1ull << plan.local_bits) - 1);
}

BAM_HD inline uint64_t entry_key(const Plan& plan, uint64_t entry) { return entry >> plan.local_bits; }

// Lower a word to a value, whoever else does the same.
template <class P, class Word>
BAM_HD void lower(Word& word, Word value) {
  typename P::template Atomic<Word> shared(word);
  Word seen = shared.load(P::relaxed);
  while (value < seen && !shared.compare_exchange_weak(seen, value, P::relaxed, P::relaxed)) {
  }
}

// The slot of a key, whose value is now at most the one given; kNoSlot when none was found in kMaxProbes.
template <class P>
BAM_HD uint32_t insert(const Plan& plan, uint64_t key, uint64_t value) {
  uint64_t entry = key << plan.local_bits | value;
  uint64_t mask = (1ull << plan.slot_bits) - 1;
  uint64_t slot = (key * 0x9E3779B97F4A7C15ull) >> (64 - plan.slot_bits);
  for (int64_t probe = 0; probe < kMaxProbes; probe++, slot = (slot + 1) & mask) {
    typename P::template Atomic<uint64_t> shared(plan.slots[slot]);
    uint64_t seen = shared.load(P::relaxed);
    if (seen == kEmpty && shared.compare_exchange_strong(seen, entry, P::relaxed, P::relaxed))
      return static_cast<uint32_t>(slot);
    // A lost exchange has loaded the winner's entry into `seen`; it may be of the same key.
    if (entry_key(plan, seen) == key) {
      if (entry < seen) lower<P>(plan.slots[slot], entry);
      return static_cast<uint32_t>(slot);
    }
  }
  return kNoSlot;
}

template <class P>
BAM_HD void table_is_full(const Plan& plan) {
  typename P::template Atomic<int64_t>(plan.report[kTableFull]).store(1, P::relaxed);
}

}  // namespace gids
