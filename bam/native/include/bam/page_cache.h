// A set-associative page cache: look-up without a lock, insertion under the lock of one set.
//
// A page can live only in the set its id hashes to. A hit pins the line with one compare-and-swap. A miss takes
// the set's lock, looks again (somebody may have inserted the page meanwhile, so a page is never in two lines),
// lets the policy choose a line and claims it. The lock is held for a bounded number of steps and never while
// anything is awaited. State: 16 bytes a line and 8 a set; none for pages that are not cached.
#pragma once

#include "bam/cache_state.h"
#include "bam/frames.h"

namespace bam {

enum class Outcome : uint32_t {
  hit,      // line pinned, bytes there
  joined,   // line pinned, somebody else is reading it: await_once() until valid or failed
  claimed,  // line pinned and ours to read: publish() or fail() it
  bypass,   // no line: read the page for this request alone
};

// What one look at a set finds. `full`: the page is there but cannot take another pin.
enum class Found : uint32_t { absent, valid, reading, full };

struct Acquired {
  Outcome outcome;
  uint64_t line_id;
};

// The line that holds the page at this moment, or kNoLine. Nothing keeps it there: a hint for try_pin().
template <class P>
BAM_HD uint64_t peek(const CacheState& cache, uint64_t page_id) {
  uint64_t first = set_of(cache, page_id) * cache.ways;
  for (uint32_t way = 0; way < cache.ways; way++)
    if (holds(typename P::template Atomic<LineWord>(cache.lines[first + way]).load(P::relaxed), page_id))
      return first + way;
  return kNoLine;
}

// Pins a line that seemed to hold the page: what peek() found, or a lane of a warp that looked at a set as one. The
// policy hears of hits alone: a line still being read keeps its meta word for its claimer, who may have to leave an
// errno there.
template <class P>
BAM_HD Found pin_line(const CacheState& cache, uint64_t line_id, uint64_t page_id, uint64_t next_use) {
  switch (try_pin<P>(cache.lines[line_id], page_id)) {
    case PinResult::absent: return Found::absent;
    case PinResult::saturated: return Found::full;
    case PinResult::reading: return Found::reading;
    case PinResult::valid: break;
  }
  on_hit<P>(cache.policy, cache.metas[line_id], next_use);
  return Found::valid;
}

// Looks the page up in one set and pins it.
template <class P>
BAM_HD Found find_in_set(const CacheState& cache, uint64_t set_id, uint64_t page_id, uint64_t next_use,
                         uint64_t& line_id) {
  uint64_t first = set_id * cache.ways;
  for (uint32_t way = 0; way < cache.ways; way++) {
    LineWord& line = cache.lines[first + way];
    if (!holds(typename P::template Atomic<LineWord>(line).load(P::relaxed), page_id)) continue;
    Found found = pin_line<P>(cache, first + way, page_id, next_use);
    if (found == Found::absent) continue;
    line_id = first + way;
    return found;
  }
  return Found::absent;
}

// The caller has locked the set and found the page absent.
template <class P>
BAM_HD Acquired insert_locked(const CacheState& cache, uint64_t set_id, uint64_t page_id, uint64_t next_use) {
  if (cache.frames.of_line != nullptr) {
    uint64_t line_id = insert_with_frame<P>(cache, set_id, page_id, next_use);
    return line_id == kNoLine ? Acquired{Outcome::bypass, 0} : Acquired{Outcome::claimed, line_id};
  }
  SetView<P> set = view_set<P>(cache, set_id);
  // A line the policy chose can be pinned by a hit before it is claimed; then the policy chooses again.
  for (uint32_t tries = 0; tries < cache.ways; tries++) {
    int32_t way = choose_victim(cache.policy, set, set_id, cache.seed, next_use);
    if (way == kNoWay) break;
    uint64_t line_id = set_id * cache.ways + static_cast<uint32_t>(way);
    uint64_t meta = claimed_meta(cache.policy, set, next_use);
    if (!try_claim<P>(cache.lines[line_id], page_id)) continue;
    store_meta<P>(cache.metas[line_id], meta);
    return {Outcome::claimed, line_id};
  }
  return {Outcome::bypass, 0};
}

BAM_HD inline Acquired outcome_of(Found found, uint64_t line_id) {
  if (found == Found::valid) return {Outcome::hit, line_id};
  if (found == Found::reading) return {Outcome::joined, line_id};
  return {Outcome::bypass, 0};
}

// As acquire(), with the set locked by the caller.
template <class P>
BAM_HD Acquired acquire_locked(const CacheState& cache, uint64_t set_id, uint64_t page_id, uint64_t next_use) {
  uint64_t line_id = 0;
  Found found = find_in_set<P>(cache, set_id, page_id, next_use, line_id);
  if (found != Found::absent) return outcome_of(found, line_id);
  return insert_locked<P>(cache, set_id, page_id, next_use);
}

// Finds `page_id` or makes room for it. `next_use` matters to the look-ahead policy alone.
template <class P>
BAM_HD Acquired acquire(const CacheState& cache, uint64_t page_id, uint64_t next_use) {
  uint64_t set_id = set_of(cache, page_id), line_id = 0;
  Found found = find_in_set<P>(cache, set_id, page_id, next_use, line_id);
  if (found != Found::absent) return outcome_of(found, line_id);
  lock_set<P>(cache.sets[set_id]);
  Acquired acquired = acquire_locked<P>(cache, set_id, page_id, next_use);
  unlock_set<P>(cache.sets[set_id]);
  return acquired;
}

// Replaces the next use of a valid line, if it is still `seen`. Under the set's lock: without it the line could change
// hands, and an errno that equals `seen` would be replaced.
template <class P>
BAM_HD void replace_use(const CacheState& cache, uint64_t line_id, uint64_t seen, uint64_t use) {
  SetState& set = cache.sets[line_id / cache.ways];
  lock_set<P>(set);
  LineWord word = typename P::template Atomic<LineWord>(cache.lines[line_id]).load(P::relaxed);
  // compare, because a hit may store another use meanwhile
  if (state_of(word) == LineState::valid)
    typename P::template Atomic<uint64_t>(cache.metas[line_id])
        .compare_exchange_strong(seen, use, P::relaxed, P::relaxed);
  unlock_set<P>(set);
}

// Tells the look-ahead policy that a page will be used at `next_use`, if it is cached and that is sooner than what it
// knows. Takes no pin: the line may change hands meanwhile, which costs a page's place in the order, not its bytes.
template <class P>
BAM_HD void note_use(const CacheState& cache, uint64_t page_id, uint64_t next_use) {
  if (!orders_by_use(cache.policy)) return;
  uint64_t first = set_of(cache, page_id) * cache.ways;
  for (uint32_t way = 0; way < cache.ways; way++) {
    LineWord word = typename P::template Atomic<LineWord>(cache.lines[first + way]).load(P::relaxed);
    if (page_of(word) != page_id || state_of(word) != LineState::valid) continue;
    uint64_t seen = load_meta<P>(cache.metas[first + way]);
    if (seen > next_use) replace_use<P>(cache, first + way, seen, next_use);
    return;
  }
}

// A use of the line's page before `horizon` that was foreseen is forgotten and becomes `instead`.
template <class P>
BAM_HD void forget_use(const CacheState& cache, uint64_t line_id, uint64_t horizon, uint64_t instead) {
  LineState state = state_of(typename P::template Atomic<LineWord>(cache.lines[line_id]).load(P::relaxed));
  if (state != LineState::valid) return;
  uint64_t seen = load_meta<P>(cache.metas[line_id]);
  if (seen < horizon) replace_use<P>(cache, line_id, seen, instead);
}

// Ends a look-ahead: forgets the uses of all lines.
template <class P>
BAM_HD void forget_uses(const CacheState& cache, uint64_t horizon, uint64_t instead) {
  if (!orders_by_use(cache.policy)) return;
  for (uint64_t line = 0; line < cache.n_sets * cache.ways; line++) forget_use<P>(cache, line, horizon, instead);
}

// A failed read: the reason (an errno) replaces the policy's word, which a failed line does not need. Under the
// set's lock, for there the policy reads, and may renumber, the words of lines that are still being read.
template <class P>
BAM_HD void fail_with(const CacheState& cache, uint64_t line_id, uint64_t reason) {
  SetState& set = cache.sets[line_id / cache.ways];
  lock_set<P>(set);
  store_meta<P>(cache.metas[line_id], reason);
  fail<P>(cache.lines[line_id]);
  unlock_set<P>(set);
}

}  // namespace bam
