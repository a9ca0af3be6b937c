// Page memory that moves between sets, so that the page given up is the one the whole cache needs last.
//
// A set of 32 lines is small: the pages worth keeping are spread over sets by a hash, some sets get a fifth more of
// them than others, and with a look-ahead that knows nearly everything this costs 8 to 12 % more misses. So under
// policy look_ahead_global there are more lines than pages fit in memory, and a line that holds a page has a *frame*,
// the memory of that page. A miss that finds no frame unused looks at its own set and a few others, drawn by a
// counter, and takes the frame of whichever page is needed last. After the V-Way cache (Qureshi, Thompson and Patt:
// "The V-Way cache: demand-based associativity via global replacement", ISCA 2005), with next uses in place of reuse
// counters. A look-up is the same as without: one set, no lock, and a hit never looks at another set.
//
// A frame changes hands under both sets' locks. The other set's is only tried, never awaited, so that two misses
// cannot wait for each other.
#pragma once

#include "bam/cache_state.h"

namespace bam {

constexpr uint64_t kNoLine = ~uint64_t{0};
// Sets looked at besides the page's own: neighbours in memory. Pages lie in sets by a hash, so they are a sample.
constexpr uint64_t kOtherSets = 4;

template <class P>
BAM_HD uint32_t load_frame(const Frames& frames, uint64_t line_id) {
  return typename P::template Atomic<uint32_t>(frames.of_line[line_id]).load(P::relaxed);
}
// Relaxed: whoever reads the bytes pinned the line, and publish() came after this store.
template <class P>
BAM_HD void store_frame(const Frames& frames, uint64_t line_id, uint32_t frame) {
  typename P::template Atomic<uint32_t>(frames.of_line[line_id]).store(frame, P::relaxed);
}

// A frame that no line ever had; 0 when there is none.
template <class P>
BAM_HD uint32_t take_unused_frame(const Frames& frames) {
  typename P::template Atomic<uint64_t> taken(frames.counters[kFramesTaken]);
  if (taken.load(P::relaxed) >= frames.n_frames) return 0;  // so the count goes past the end by threads, not by misses
  uint64_t frame = taken.fetch_add(1, P::relaxed);
  return frame < frames.n_frames ? static_cast<uint32_t>(frame + 1) : 0;
}

// A line whose page can be given up, as it was seen.
struct Candidate {
  uint64_t line_id;  // kNoLine: none
  LineWord word;
  uint64_t use;
};

// The line of the set that is needed last, if it is needed later than `best`. A failed line is never needed.
template <class P>
BAM_HD void look_for_candidate(const CacheState& cache, uint64_t set_id, Candidate& best) {
  uint64_t first = set_id * cache.ways;
  for (uint64_t line_id = first; line_id < first + cache.ways; line_id++) {
    LineWord word = typename P::template Atomic<LineWord>(cache.lines[line_id]).load(P::relaxed);
    if (!claimable(word) || load_frame<P>(cache.frames, line_id) == 0) continue;
    uint64_t use = state_of(word) == LineState::valid ? load_meta<P>(cache.metas[line_id]) : kNever;
    if (best.line_id == kNoLine || use > best.use) best = {line_id, word, use};
  }
}

// A line of the set that holds no page, one with a frame if there is such; kNoLine when all hold pages.
template <class P>
BAM_HD uint64_t unused_line(const CacheState& cache, uint64_t set_id) {
  uint64_t first = set_id * cache.ways, found = kNoLine;
  for (uint64_t line_id = first; line_id < first + cache.ways; line_id++) {
    LineWord word = typename P::template Atomic<LineWord>(cache.lines[line_id]).load(P::relaxed);
    if (!claimable(word) || state_of(word) == LineState::valid) continue;
    if (load_frame<P>(cache.frames, line_id) != 0) return line_id;
    if (found == kNoLine) found = line_id;
  }
  return found;
}

// Takes the frame of another set's line, which then is empty; 0 if the line changed or its set is locked.
template <class P>
BAM_HD uint32_t take_frame_of(const CacheState& cache, const Candidate& victim) {
  SetState& set = cache.sets[victim.line_id / cache.ways];
  if (!try_lock_set<P>(set)) return 0;
  uint32_t frame = 0;
  LineWord seen = victim.word;
  // acquire: pairs with the release in unpin(), so the last holder has finished with the bytes
  if (typename P::template Atomic<LineWord>(cache.lines[victim.line_id])
          .compare_exchange_strong(seen, 0, P::acquire, P::relaxed)) {
    frame = load_frame<P>(cache.frames, victim.line_id);
    store_frame<P>(cache.frames, victim.line_id, 0);
  }
  unlock_set<P>(set);
  return frame;
}

template <class P>
BAM_HD Candidate find_candidate(const CacheState& cache, uint64_t set_id, bool other_sets) {
  Candidate best = {kNoLine, 0, 0};
  look_for_candidate<P>(cache, set_id, best);
  if (!other_sets) return best;
  typename P::template Atomic<uint64_t> draws(cache.frames.counters[kFrameDraws]);
  uint64_t other = multiply_high(mix64(draws.fetch_add(1, P::relaxed)), cache.n_sets);
  for (uint64_t step = 0; step < kOtherSets && step < cache.n_sets; step++) {
    if (other != set_id) look_for_candidate<P>(cache, other, best);
    other = other + 1 == cache.n_sets ? 0 : other + 1;
  }
  return best;
}

// Claims a line of the set for the page, which the caller found absent with the set locked; kNoLine: do not cache it.
template <class P>
BAM_HD uint64_t insert_with_frame(const CacheState& cache, uint64_t set_id, uint64_t page_id, uint64_t next_use) {
  for (uint32_t tries = 0; tries < kMaxWays; tries++) {
    uint64_t line_id = unused_line<P>(cache, set_id);
    uint32_t frame = 0;
    if (line_id != kNoLine) {
      frame = load_frame<P>(cache.frames, line_id);
      if (frame == 0) frame = take_unused_frame<P>(cache.frames);
    }
    if (frame == 0) {
      Candidate victim = find_candidate<P>(cache, set_id, line_id != kNoLine);
      if (victim.line_id == kNoLine || next_use > victim.use) return kNoLine;
      if (victim.line_id / cache.ways == set_id) {
        line_id = victim.line_id;
        frame = load_frame<P>(cache.frames, line_id);
      } else {
        frame = take_frame_of<P>(cache, victim);
      }
    }
    // The line can be pinned by a hit, the frame taken by somebody else; then all is looked at again.
    if (frame == 0) continue;
    store_frame<P>(cache.frames, line_id, frame);
    if (!try_claim<P>(cache.lines[line_id], page_id)) continue;
    store_meta<P>(cache.metas[line_id], next_use);
    return line_id;
  }
  return kNoLine;
}

}  // namespace bam
