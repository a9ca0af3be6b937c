// Threads that share one small page cache: every holder checks every byte of its page.
#pragma once

#include <cerrno>
#include <cstring>

#include "bam/host_cache.h"
#include "stress.h"

namespace stress {

constexpr uint32_t kPageBytes = 512;
constexpr uint64_t kPageWords = kPageBytes / sizeof(uint64_t);

constexpr const char* kPolicyNames[] = {"random", "clock", "sieve", "look-ahead", "global look-ahead"};  // by bam::Policy

struct CacheLoad {
  bam::Policy policy;
  uint64_t n_lines;
  uint64_t n_pages;
  uint32_t n_threads;
  uint32_t visits;  // of each thread
};

struct CacheCounts {
  std::atomic<uint64_t> hits{0}, joins{0}, claims{0}, bypasses{0}, failures{0};
};

inline uint64_t word_of(uint64_t page, uint64_t index) { return bam::mix64(page * kPageWords + index); }
// Reads of every seventh page fail now and then, always for the same reason.
inline bool may_fail(uint64_t page) { return page % 7 == 3; }
inline uint64_t reason_of(uint64_t page) { return EIO + page % 2; }

inline void fill_page(uint64_t page, uint8_t* line) {
  auto* words = reinterpret_cast<uint64_t*>(line);
  for (uint64_t i = 0; i < kPageWords; i++) words[i] = word_of(page, i);
}
inline bool holds_page(uint64_t page, const uint8_t* line) {
  auto* words = reinterpret_cast<const uint64_t*>(line);
  for (uint64_t i = 0; i < kPageWords; i++)
    if (words[i] != word_of(page, i)) return false;
  return true;
}

// `Publish` is the platform publish() runs on: the planted race has another one than the rest.
template <class Publish>
void visit_page(bam::HostCache& cache, uint64_t page, bool fails, uint64_t next_use, CacheCounts& counts,
                Checks& checks) {
  bam::Acquired acquired = cache.acquire(page, next_use);
  if (acquired.outcome == bam::Outcome::bypass) {
    counts.bypasses.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  uint64_t line = acquired.line_id;
  if (acquired.outcome == bam::Outcome::claimed) {
    counts.claims.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::yield();  // so that others join the read, whatever the number of cores
    if (fails) {
      std::memset(cache.line(line), 0, kPageBytes / 2);
      cache.fail(line, reason_of(page));
    } else {
      fill_page(page, cache.line(line));
      bam::publish<Publish>(cache.state.lines[line]);
    }
  }
  if (acquired.outcome == bam::Outcome::hit) counts.hits.fetch_add(1, std::memory_order_relaxed);
  if (acquired.outcome == bam::Outcome::joined) counts.joins.fetch_add(1, std::memory_order_relaxed);
  while (cache.line_state(line) == bam::LineState::reading) bam::HostPlatform::pause();
  if (cache.line_state(line) == bam::LineState::valid) {
    checks.expect(holds_page(page, cache.line(line)), "a holder reads the bytes of another page");
  } else {
    counts.failures.fetch_add(1, std::memory_order_relaxed);
    checks.expect(may_fail(page), "a read failed that nobody let fail");
    checks.expect(cache.failure(line) == reason_of(page), "a holder of a failed line finds another reason");
  }
  if (page % 4 == 0) std::this_thread::yield();  // some hold their pins for longer
  cache.unpin(line);
}

inline void check_idle(const bam::HostCache& cache, Checks& checks) {
  for (uint64_t line = 0; line < cache.n_lines(); line++) {
    bam::LineWord word = cache.state.lines[line];
    checks.expect(bam::pins_of(word) == 0, "pins are left");
    checks.expect(bam::state_of(word) != bam::LineState::reading, "a line is left in reading");
    for (uint64_t other = 0; other < line; other++)
      checks.expect(!bam::holds(word, bam::page_of(cache.state.lines[other])) ||
                        !bam::holds(cache.state.lines[other], bam::page_of(word)),
                    "a page is in two lines");
  }
  for (uint64_t set = 0; set < cache.state.n_sets; set++)
    checks.expect(cache.state.sets[set].lock == 0, "a set is left locked");
}

template <class Publish>
std::string stress_cache(const CacheLoad& load, Checks& checks) {
  int error = 0;
  auto cache = bam::HostCache::create({load.n_lines, kPageBytes, load.policy, 1}, &error);
  checks.expect(cache != nullptr, "no memory for the cache");
  if (cache == nullptr) return "nothing";
  CacheCounts counts;
  run_threads(load.n_threads, [&](uint32_t thread) {
    Random random(thread);
    for (uint32_t i = 0; i < load.visits; i++) {
      uint64_t page = random.below(load.n_pages), use = random.below(8);
      bool fails = may_fail(page) && random.below(4) == 0;
      visit_page<Publish>(*cache, page, fails, use, counts, checks);
      uint64_t other = random.below(load.n_pages);
      if (i % 8 == 0) bam::note_use<bam::HostPlatform>(cache->state, other, random.below(8));
      if (i % 256 == 0) bam::forget_uses<bam::HostPlatform>(cache->state, random.below(8), bam::kNever);
    }
  });
  check_idle(*cache, checks);
  checks.expect(counts.hits != 0 && counts.claims != 0, "no hits or no reads");
  if (load.n_lines > 1)  // the one line of a cache of one is mostly pinned
    checks.expect(counts.joins != 0 && counts.failures != 0, "no joins or no failures");
  return std::to_string(counts.hits) + " hits, " + std::to_string(counts.claims) + " reads, " +
         std::to_string(counts.joins) + " joins, " + std::to_string(counts.bypasses) + " bypasses, " +
         std::to_string(counts.failures) + " failures";
}

}  // namespace stress
