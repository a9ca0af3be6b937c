// Page caches with one bug each. The explorer must find every one of them; explore.cc fails when it does not.
#pragma once

#include "cache_model.h"

namespace model {

// The platform with every release turned into a relaxed store: right in every interleaving, wrong in memory order.
struct RelaxedReleasePlatform : ScheduledPlatform {
  static constexpr std::memory_order release = std::memory_order_relaxed;
};

struct RelaxedPublish : RealCache {
  static void publish(LineWord& line) { bam::publish<RelaxedReleasePlatform>(line); }
};

struct RelaxedUnpin : RealCache {
  static void unpin(LineWord& line) { bam::unpin<RelaxedReleasePlatform>(line); }
};

// A miss inserts what it did not find before it had the lock, without looking again.
struct InsertWithoutSecondLook : RealCache {
  static Acquired acquire(const CacheState& cache, uint64_t page, uint64_t next_use) {
    using P = ScheduledPlatform;
    uint64_t set_id = bam::set_of(cache, page), line_id = 0;
    bam::Found found = bam::find_in_set<P>(cache, set_id, page, next_use, line_id);
    if (found != bam::Found::absent) return bam::outcome_of(found, line_id);
    bam::lock_set<P>(cache.sets[set_id]);
    Acquired acquired = bam::insert_locked<P>(cache, set_id, page, next_use);
    bam::unlock_set<P>(cache.sets[set_id]);
    return acquired;
  }
};

// A set that is locked by looking first and storing then.
struct LockByLoadAndStore : RealCache {
  static Acquired acquire(const CacheState& cache, uint64_t page, uint64_t next_use) {
    using P = ScheduledPlatform;
    uint64_t set_id = bam::set_of(cache, page), line_id = 0;
    P::Atomic<uint32_t> lock(cache.sets[set_id].lock);
    while (lock.load(P::acquire) != 0) P::pause();
    lock.store(1, P::relaxed);
    bam::Found found = bam::find_in_set<P>(cache, set_id, page, next_use, line_id);
    Acquired acquired = found == bam::Found::absent ? bam::insert_locked<P>(cache, set_id, page, next_use)
                                                    : bam::outcome_of(found, line_id);
    bam::unlock_set<P>(cache.sets[set_id]);
    return acquired;
  }
};

// Takes a frame of another set without that set's lock.
struct FrameTakenWithoutLock : RealCache {
  static Acquired acquire(const CacheState& cache, uint64_t page, uint64_t next_use) {
    using P = ScheduledPlatform;
    uint64_t set_id = bam::set_of(cache, page);
    bam::lock_set<P>(cache.sets[set_id]);
    uint64_t line_id = bam::unused_line<P>(cache, set_id);
    uint32_t frame = line_id == bam::kNoLine ? 0 : bam::load_frame<P>(cache.frames, line_id);
    bam::Candidate victim = bam::find_candidate<P>(cache, set_id, true);
    if (frame == 0 && victim.line_id != bam::kNoLine && next_use <= victim.use && victim.line_id / cache.ways != set_id) {
      P::Atomic<LineWord>(cache.lines[victim.line_id]).store(0, P::acquire);
      frame = bam::load_frame<P>(cache.frames, victim.line_id);
      bam::store_frame<P>(cache.frames, victim.line_id, 0);
    }
    bool claimed = frame != 0 && line_id != bam::kNoLine;
    if (claimed) bam::store_frame<P>(cache.frames, line_id, frame);
    claimed = claimed && bam::try_claim<P>(cache.lines[line_id], page);
    bam::unlock_set<P>(cache.sets[set_id]);
    return claimed ? Acquired{Outcome::claimed, line_id} : Acquired{Outcome::bypass, 0};
  }
};

// Publishes in two steps, and so loses the pin of whoever joins between them.
struct PublishByLoadAndStore : RealCache {
  static void publish(LineWord& line) {
    using P = ScheduledPlatform;
    P::Atomic<LineWord> word(line);
    word.store(word.load(P::relaxed) + 1, P::release);
  }
};

// A sieve hit that sets the visited bit by load and store: a number that was replaced meanwhile comes back.
struct VisitByLoadAndStore : RealCache {
  static Acquired acquire(const CacheState& cache, uint64_t page, uint64_t next_use) {
    using P = ScheduledPlatform;
    for (uint32_t way = 0; way < cache.ways; way++) {
      if (bam::try_pin<P>(cache.lines[way], page) != bam::PinResult::valid) continue;
      uint64_t seen = bam::load_meta<P>(cache.metas[way]);
      bam::store_meta<P>(cache.metas[way], seen | 1);
      return {Outcome::hit, way};
    }
    return bam::acquire<P>(cache, page, next_use);
  }
};

// Says that the read failed before it has noted why.
struct ReasonAfterFailure : RealCache {
  static void fail_with(const CacheState& cache, uint64_t line_id, uint64_t reason) {
    bam::fail<ScheduledPlatform>(cache.lines[line_id]);
    bam::store_meta<ScheduledPlatform>(cache.metas[line_id], reason);
  }
};

// Notes a use by a compare-exchange without the lock: it takes an errno for the equal use of an earlier page.
struct NoteUseWithoutLock : RealCache {
  static void note_use(const CacheState& cache, uint64_t page, uint64_t next_use) {
    using P = ScheduledPlatform;
    LineWord word = P::Atomic<LineWord>(cache.lines[0]).load(P::relaxed);
    if (bam::page_of(word) != page || bam::state_of(word) != LineState::valid) return;
    P::Atomic<uint64_t> meta(cache.metas[0]);
    uint64_t seen = meta.load(P::relaxed);
    if (seen > next_use) meta.compare_exchange_strong(seen, next_use, P::relaxed, P::relaxed);
  }
};

// A set without a free line stays locked.
struct LeftLocked : RealCache {
  static Acquired acquire(const CacheState& cache, uint64_t page, uint64_t next_use) {
    using P = ScheduledPlatform;
    uint64_t set_id = bam::set_of(cache, page), line_id = 0;
    bam::lock_set<P>(cache.sets[set_id]);
    bam::Found found = bam::find_in_set<P>(cache, set_id, page, next_use, line_id);
    if (found != bam::Found::absent) {
      bam::unlock_set<P>(cache.sets[set_id]);
      return bam::outcome_of(found, line_id);
    }
    Acquired acquired = bam::insert_locked<P>(cache, set_id, page, next_use);
    if (acquired.outcome != Outcome::bypass) bam::unlock_set<P>(cache.sets[set_id]);
    return acquired;
  }
};

}  // namespace model
