// What a page cache consists of: plain memory owned by the caller, divided into sets, each with a lock.
#pragma once

#include "bam/page_state.h"
#include "bam/policy.h"

namespace bam {

constexpr uint32_t kMaxWays = 32;

struct SetState {
  uint32_t lock;
  uint32_t hand;
};

// Memory for pages that any line of the cache can be given (frames.h). `of_line` null: line i has page memory i for ever.
struct Frames {
  uint32_t* of_line;   // frame + 1 of each line; 0: the line has none, and holds no page
  uint64_t* counters;  // kFramesTaken, kFrameDraws
  uint64_t n_frames;
};
constexpr uint32_t kFramesTaken = 0;  // frames that were ever given to a line, and perhaps a few more
constexpr uint32_t kFrameDraws = 1;   // how often other sets were looked at for a victim
constexpr uint32_t kFrameCounters = 2;
constexpr uint64_t kMaxFrames = (uint64_t{1} << 32) - 1;

// Plain memory owned by the caller; `n_sets * ways` lines. All zero is an empty cache.
struct CacheState {
  LineWord* lines;
  uint64_t* metas;
  SetState* sets;
  uint64_t n_sets;
  uint32_t ways;
  Policy policy;
  uint64_t seed;
  Frames frames;
};

constexpr uint64_t kStateBytesPerLine = sizeof(LineWord) + sizeof(uint64_t);
static_assert(kStateBytesPerLine + sizeof(SetState) <= 24, "state of a line, and of a set with one line");

// High half of the 128-bit product: maps a hash to [0, n) without a division.
BAM_HD inline uint64_t multiply_high(uint64_t hash, uint64_t n) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(hash, n);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(hash) * n >> 64);
#endif
}

BAM_HD inline uint64_t set_of(const CacheState& cache, uint64_t page_id) {
  return multiply_high(mix64(page_id + 0x9e3779b97f4a7c15ull), cache.n_sets);
}

template <class P>
BAM_HD SetView<P> view_set(const CacheState& cache, uint64_t set_id) {
  uint64_t first = set_id * cache.ways;
  return {cache.lines + first, cache.metas + first, cache.ways, &cache.sets[set_id].hand};
}

template <class P>
BAM_HD void lock_set(SetState& set) {
  typename P::template Atomic<uint32_t> lock(set.lock);
  for (;;) {
    uint32_t expected = 0;
    // acquire: pairs with the release in unlock_set()
    if (lock.compare_exchange_weak(expected, 1, P::acquire, P::relaxed)) return;
    P::pause();
  }
}

template <class P>
BAM_HD void unlock_set(SetState& set) {
  // release: pairs with the acquire in lock_set()
  typename P::template Atomic<uint32_t>(set.lock).store(0, P::release);
}

// Locks the set if nobody has it locked; does not wait.
template <class P>
BAM_HD bool try_lock_set(SetState& set) {
  uint32_t expected = 0;
  // acquire: pairs with the release in unlock_set()
  return typename P::template Atomic<uint32_t>(set.lock).compare_exchange_strong(expected, 1, P::acquire, P::relaxed);
}

}  // namespace bam
