// Look-ups in the page cache by the lanes of a warp.
//
// The warp probes the set of each lane's page as one (a lane a way), then every lane pins its own line, so the look-ups
// are in the memory system together.
#pragma once

#include "bam/device_store.h"

namespace bam {

// What a look at a set without its lock shows; like peek(), nothing keeps it so.
struct Probe {
  uint64_t line_id;  // that holds the page, or kNoLine
  bool has_room;     // if none does: some line is not pinned
};

// The sets of the lanes in `wanted`, each looked at by the whole warp. The inner loops are most of what a hit costs, so
// they choose instead of branching, and look at sets nobody asked for rather than ask.
template <class P>
BAM_HD Probe probe_sets(const CacheState& cache, uint64_t page_id, uint32_t wanted) {
  constexpr uint32_t kTogether = 8;  // loads in flight of one lane
  uint64_t first = set_of(cache, page_id) * cache.ways, lines = reinterpret_cast<uint64_t>(cache.lines + first);
  LineWord key = key_of(page_id);
  uint32_t holders = 0, free = 0;  // ways of this lane's set
  uint32_t way = P::lane() < cache.ways ? P::lane() : cache.ways - 1;  // the last one several times, if they are few
  for (uint32_t begin = 0; begin < kWarp; begin += kTogether) {
    if ((wanted >> begin & ((1u << kTogether) - 1)) == 0) continue;
    LineWord words[kTogether];
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      LineWord* set = reinterpret_cast<LineWord*>(P::shuffle(lines, begin + i));
      words[i] = typename P::template Atomic<LineWord>(set[way]).load(P::relaxed);
    }
    BAM_UNROLL for (uint32_t i = 0; i < kTogether; i++) {
      bool mine = P::lane() == begin + i;
      uint32_t held = P::ballot(has_key(words[i], P::shuffle(key, begin + i)));
      holders = mine ? held : holders;
      if (held != 0) continue;  // the same for all lanes
      uint32_t room = P::ballot(claimable(words[i]));
      free = mine ? room : free;
    }
  }
  // Lanes without a way look at the last one at another moment than its own lane does, and may be the only ones to see it
  // change hands.
  uint32_t found = lowest_bit(holders | 1u << (cache.ways - 1));
  return {holders != 0 ? first + found : kNoLine, free != 0};
}

// A lane pins the line that its page was seen in. False when it has to be probed again.
template <class P>
BAM_HD bool try_pin_seen(const CacheState& cache, const Probe& seen, uint64_t page_id, uint64_t next_use,
                         Acquired& got) {
  Found found = pin_line<P>(cache, seen.line_id, page_id, next_use);
  got = outcome_of(found, seen.line_id);
  return found != Found::absent;
}

// A lane makes room for its page. False when the set is locked.
template <class P>
BAM_HD BAM_RARE bool try_insert(const CacheState& cache, uint64_t page_id, uint64_t next_use, Acquired& got) {
  uint64_t set_id = set_of(cache, page_id);
  if (!try_lock_set<P>(cache.sets[set_id])) return false;
  got = acquire_locked<P>(cache, set_id, page_id, next_use);
  unlock_set<P>(cache.sets[set_id]);
  return true;
}

// Of the lanes that miss, those that insert now: the lowest of each set. Where page memory moves between sets
// (frames.h) that is not enough to say which page goes, so of a warp that is `alone` only the lowest of all does.
template <class P>
BAM_HD bool inserts_now(const CacheState& cache, uint64_t page_id, bool misses, bool alone) {
  uint64_t turn = alone && cache.frames.of_line != nullptr ? 0 : set_of(cache, page_id);
  uint32_t peers = P::match(~0u, misses ? turn : ~uint64_t{P::lane()});  // sets are fewer than that
  return misses && lowest_bit(peers) == P::lane();
}

// As acquire(), for the lanes of a warp that want it, in a fixed order: who sees its page pins it, before anything is
// given up; then those that miss insert, the lanes of a set in rising order, a probe before each. So what a warp that
// is `alone` finds follows from what it looks up (bam/array/device_gather_model.py foretells it). Several warps come
// to a set in any order. A lane whose set is locked probes again instead of waiting: by then the page may be there,
// or no room for it.
template <class P>
BAM_HD Acquired look_up(const CacheState& cache, uint64_t page_id, uint64_t next_use, bool wanted, bool alone) {
  Acquired got{Outcome::bypass, 0};
  for (uint32_t left = P::ballot(wanted); left != 0; left = P::ballot(wanted)) {
    Probe seen = probe_sets<P>(cache, page_id, left);
    bool misses = wanted && seen.line_id == kNoLine;
    if (wanted && !misses) wanted = !try_pin_seen<P>(cache, seen, page_id, next_use, got);
    if (misses && !seen.has_room) misses = wanted = false;  // a bypass, without waiting for a lock that many want
    if (P::ballot(misses) == 0) continue;
    P::sync_warp();  // pins of this round are seen by whoever chooses a line to give up
    if (inserts_now<P>(cache, page_id, misses, alone)) {
      wanted = !try_insert<P>(cache, page_id, next_use, got);
      if (wanted) P::pause();
    }
    P::sync_warp();  // lines that were claimed are seen by the next probe
  }
  return got;
}

// The latest next use that lanes of a warp give for a page. Rows that straddle pages have some in common, and each
// says when the first of its pages is needed: so the latest is nearest, whichever lane the policy hears of last.
template <class P>
BAM_HD uint64_t latest_use(uint64_t page_id, uint64_t next_use, bool wanted) {
  uint32_t left = P::match(~0u, wanted ? page_id : ~uint64_t{P::lane()});
  uint64_t latest = next_use;
  for (; P::ballot(left != 0) != 0; left &= left - 1) {
    uint64_t other = P::shuffle(next_use, left != 0 ? lowest_bit(left) : P::lane());
    latest = other > latest ? other : latest;
  }
  return latest;
}

}  // namespace bam
