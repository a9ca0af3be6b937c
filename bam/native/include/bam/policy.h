// Which line of a set to give up. Each policy keeps one 64-bit `meta` word a line and one 32-bit `hand` a set.
//
//   random      a hash of (seed, set, number of evictions so far in the set)
//   clock       a referenced bit a line; the hand walks the ways, clearing bits, and takes the first clear one
//   sieve       insertion order and a visited bit; the hand walks from the oldest to the newest insertion,
//               clearing visited bits, takes the first clear one and stays behind it; past the newest it starts
//               at the oldest again (Zhang et al., NSDI 2024)
//   look_ahead  the next use of the page, in the caller's unit of time; the farthest goes, and a page that is
//               used later than every line it could replace is not cached at all
//   look_ahead_global   the same over the whole cache and not one set (frames.h)
//
// Plain Python twins: bam/cache/policies.py, which the tests hold against this file, access by access.
#pragma once

#include "bam/page_state.h"

namespace bam {

enum class Policy : uint32_t { random = 0, clock = 1, sieve = 2, look_ahead = 3, look_ahead_global = 4 };

// Whether a line's meta word is the next use of its page.
BAM_HD constexpr bool orders_by_use(Policy policy) {
  return policy == Policy::look_ahead || policy == Policy::look_ahead_global;
}

// Sieve's largest insertion number: the hand, 32 bits, can still point behind it.
constexpr uint64_t kLastInsertion = (uint64_t{1} << 32) - 2;

// A next use that never comes.
constexpr uint64_t kNever = ~uint64_t{0};
constexpr int32_t kNoWay = -1;

// SplitMix64's finaliser (Steele, Lea, Flood, OOPSLA 2014): spreads page ids over sets, and picks random victims.
BAM_HD constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Sieve's meta word: insertion number << 1 | visited.
BAM_HD constexpr uint64_t sieve_meta(uint64_t insertion, bool visited) { return insertion << 1 | (visited ? 1 : 0); }

template <class P>
BAM_HD uint64_t load_meta(uint64_t& meta) {
  return typename P::template Atomic<uint64_t>(meta).load(P::relaxed);
}
template <class P>
BAM_HD void store_meta(uint64_t& meta, uint64_t value) {
  typename P::template Atomic<uint64_t>(meta).store(value, P::relaxed);
}

// A look-up found the page. Called with the line pinned but its set not locked; metas are hints, so relaxed does.
template <class P>
BAM_HD void on_hit(Policy policy, uint64_t& meta, uint64_t next_use) {
  switch (policy) {
    case Policy::random: return;
    case Policy::clock:
      if (P::kWritesAreCheap || load_meta<P>(meta) == 0) store_meta<P>(meta, 1);
      return;
    case Policy::sieve: {
      // not load and store: the set may be renumbered between the two, and the old number would come back
      bool set = !P::kWritesAreCheap && (load_meta<P>(meta) & 1) != 0;
      if (!set) typename P::template Atomic<uint64_t>(meta).fetch_or(1, P::relaxed);
      return;
    }
    case Policy::look_ahead:
    case Policy::look_ahead_global: store_meta<P>(meta, next_use); return;
  }
}

// One set as the policies see it. All calls below are made with the set locked.
template <class P>
struct SetView {
  LineWord* lines;
  uint64_t* metas;
  uint32_t ways;
  uint32_t* hand;

  BAM_HD LineWord line(uint32_t way) const {
    return typename P::template Atomic<LineWord>(lines[way]).load(P::relaxed);
  }
  BAM_HD uint64_t meta(uint32_t way) const { return load_meta<P>(metas[way]); }
  BAM_HD bool evictable(uint32_t way) const { return claimable(line(way)); }
};

template <class P>
BAM_HD int32_t random_victim(const SetView<P>& set, uint64_t set_id, uint64_t seed) {
  uint64_t draw = mix64(mix64(seed ^ set_id * 0x9e3779b97f4a7c15ull) + *set.hand);
  uint32_t start = static_cast<uint32_t>(draw % set.ways);
  for (uint32_t step = 0; step < set.ways; step++) {
    uint32_t way = (start + step) % set.ways;
    if (set.evictable(way)) {
      *set.hand += 1;
      return static_cast<int32_t>(way);
    }
  }
  return kNoWay;
}

template <class P>
BAM_HD int32_t clock_victim(const SetView<P>& set) {
  for (uint32_t step = 0; step < 2 * set.ways; step++) {  // two turns: the first may only clear bits
    uint32_t way = *set.hand;
    *set.hand = (way + 1) % set.ways;
    if (!set.evictable(way)) continue;
    if (set.meta(way) == 0) return static_cast<int32_t>(way);
    store_meta<P>(set.metas[way], 0);
  }
  return kNoWay;
}

// True when the line's meta word is its insertion number: that of a failed line is an errno.
template <class P>
BAM_HD bool is_inserted(const SetView<P>& set, uint32_t way) {
  LineState state = state_of(set.line(way));
  return state == LineState::reading || state == LineState::valid;
}

// The line with the smallest insertion number that is at least `from`; kNoWay when there is none.
template <class P>
BAM_HD int32_t next_inserted(const SetView<P>& set, uint64_t from) {
  int32_t found = kNoWay;
  uint64_t best = kNever;
  for (uint32_t way = 0; way < set.ways; way++) {
    if (!is_inserted(set, way)) continue;
    uint64_t insertion = set.meta(way) >> 1;
    if (insertion >= from && insertion < best) {
      best = insertion;
      found = static_cast<int32_t>(way);
    }
  }
  return found;
}

template <class P>
BAM_HD int32_t sieve_victim(const SetView<P>& set) {
  uint64_t from = *set.hand;
  for (uint32_t step = 0; step < 2 * set.ways + 2; step++) {  // two turns and the two steps that wrap
    int32_t way = next_inserted(set, from);
    if (way == kNoWay) {
      if (from == 0) return kNoWay;
      from = 0;
      continue;
    }
    uint64_t meta = set.meta(static_cast<uint32_t>(way));
    from = (meta >> 1) + 1;
    if (!set.evictable(static_cast<uint32_t>(way))) continue;
    if ((meta & 1) == 0) {
      // The page that replaces the newest must not be the next victim: it has only just come.
      *set.hand = next_inserted(set, from) == kNoWay ? 0 : static_cast<uint32_t>(from);
      return way;
    }
    store_meta<P>(set.metas[way], meta & ~uint64_t{1});
  }
  return kNoWay;
}

template <class P>
BAM_HD int32_t look_ahead_victim(const SetView<P>& set, uint64_t next_use) {
  int32_t found = kNoWay;
  uint64_t farthest = 0;
  for (uint32_t way = 0; way < set.ways; way++) {
    if (!set.evictable(way)) continue;
    uint64_t use = set.meta(way);
    if (found == kNoWay || use > farthest) {
      farthest = use;
      found = static_cast<int32_t>(way);
    }
  }
  return found != kNoWay && next_use > farthest ? kNoWay : found;
}

// An unused way if there is one, else what the policy gives up; kNoWay: do not cache the page.
template <class P>
BAM_HD int32_t choose_victim(Policy policy, const SetView<P>& set, uint64_t set_id, uint64_t seed, uint64_t next_use) {
  for (uint32_t way = 0; way < set.ways; way++) {
    LineWord word = set.line(way);
    if (claimable(word) && state_of(word) != LineState::valid) return static_cast<int32_t>(way);
  }
  switch (policy) {
    case Policy::random: return random_victim(set, set_id, seed);
    case Policy::clock: return clock_victim(set);
    case Policy::sieve: return sieve_victim(set);
    case Policy::look_ahead:
    case Policy::look_ahead_global: return look_ahead_victim(set, next_use);
  }
  return kNoWay;
}

// Numbers the lines of a set 1, 2, ... in the order they have, and moves the hand along. Returns how many there are.
template <class P>
BAM_HD uint64_t renumber(const SetView<P>& set) {
  uint64_t from = 0, rank = 0;
  uint32_t hand = 0;
  while (rank < set.ways) {
    int32_t way = next_inserted(set, from);
    if (way == kNoWay) break;
    uint64_t meta = set.meta(static_cast<uint32_t>(way)), insertion = meta >> 1;
    rank++;
    if (insertion < *set.hand) hand = static_cast<uint32_t>(rank + 1);
    store_meta<P>(set.metas[way], sieve_meta(rank, (meta & 1) != 0));
    from = insertion + 1;
  }
  *set.hand = hand;
  return rank;
}

// Sieve's next insertion number: one more than any in the set.
template <class P>
BAM_HD uint64_t next_insertion(const SetView<P>& set) {
  uint64_t newest = 0;
  for (uint32_t way = 0; way < set.ways; way++) {
    if (!is_inserted(set, way)) continue;
    uint64_t insertion = set.meta(way) >> 1;
    newest = insertion > newest ? insertion : newest;
  }
  return (newest < kLastInsertion ? newest : renumber(set)) + 1;
}

// Meta word of a line that has just been claimed.
template <class P>
BAM_HD uint64_t claimed_meta(Policy policy, const SetView<P>& set, uint64_t next_use) {
  switch (policy) {
    case Policy::random:
    case Policy::clock: return 0;
    case Policy::sieve: return sieve_meta(next_insertion(set), false);
    case Policy::look_ahead:
    case Policy::look_ahead_global: return next_use;
  }
  return 0;
}

}  // namespace bam
