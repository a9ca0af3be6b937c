// Rows over pages over files: what a virtual array reads through (host only).
//
// A Store joins an engine, a layout and a page cache. Any number of threads may gather from it at once; each call
// borrows a Gatherer, which owns a channel's worth of reads in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bam/engine.h"
#include "bam/extent.h"
#include "bam/read_buffers.h"
#include "bam/host_cache.h"

namespace bam {

struct StoreConfig {
  uint32_t page_bytes;
  uint32_t queue_depth;   // reads in flight of one thread
  uint32_t merge_bytes;   // longest read that neighbouring pages are merged into
  uint32_t bridge_bytes;  // longest hole between two of them that is read along
  uint32_t timeout_ms;    // a gather that makes no progress for so long gives up
  uint64_t staging_bytes; // of the buffers that one thread reads into
  uint64_t first_page_id; // what the cache calls page 0 of this store, so that stores can share one cache
};

// One gather. Row ids[i] goes to row out_rows[i] of `out`, or to row i when `out_rows` is null. `next_use` is null or
// one number per id.
struct GatherRequest {
  const int64_t* ids;
  uint64_t n_ids;
  const uint64_t* next_use;
  uint8_t* out;
  uint64_t row_bytes;
  const int64_t* out_rows;
};

// `error` 0: every row is in `out`. Otherwise the reason of the failed row that comes first in `ids`.
struct GatherResult {
  int32_t error;        // errno; ERANGE: the id at `position` is not a row
  uint32_t file;
  uint64_t file_offset;
  uint64_t length;
  uint64_t page_id;
  uint64_t position;    // in `ids`
};
static_assert(sizeof(GatherResult) == 40, "ABI");

// Counted since the store was opened. A row counts as storage if any of its pages had to be read for it, else as
// joined if any was being read already, else as a hit.
struct StoreCounters {
  uint64_t gathers, rows, rows_hit, rows_joined, rows_storage;
  uint64_t pages;                          // page look-ups: one per page and row, or per page and run of rows
  uint64_t hits, joins, misses, bypasses;  // of look-ups; bypasses are the misses that were not cached
  uint64_t reads, bytes_read, bytes_useful, retries, failures;
};
constexpr uint32_t kStoreCounters = sizeof(StoreCounters) / sizeof(uint64_t);

class Gatherer;

class Store {
 public:
  Store(std::shared_ptr<Engine> engine, const Layout& layout, std::shared_ptr<HostCache> cache, StoreConfig config);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Thread-safe. A negative return is -errno: no reads could be started at all (`error` says why).
  int gather(const GatherRequest& request, GatherResult* result, std::string* error);
  StoreCounters counters() const;
  // When no call is under way and none will come: waits at most `wait_ms` for reads that calls gave up, and leaves
  // behind those that have not ended (leftovers.h). Returns how many.
  uint32_t close(uint32_t wait_ms);

  // What one thread may have in flight, and what memory that takes.
  ReadLimits read_limits() const;

  Engine& engine() { return *engine_; }
  const Layout& layout() const { return layout_; }
  HostCache& cache() { return *cache_; }
  const StoreConfig& config() const { return config_; }

 private:
  friend class Gatherer;
  std::unique_ptr<Gatherer> borrow(std::string* error);
  void give_back(std::unique_ptr<Gatherer> gatherer);
  void take_back_settled();
  void count(const StoreCounters& delta);

  std::shared_ptr<Engine> engine_;
  std::vector<Extent> extents_;
  Layout layout_;
  std::shared_ptr<HostCache> cache_;
  StoreConfig config_;
  std::mutex mutex_;  // guards idle_ and abandoned_
  std::vector<std::unique_ptr<Gatherer>> idle_;
  std::vector<std::unique_ptr<Gatherer>> abandoned_;  // timed out with reads in flight; kept until these have ended
  std::atomic<uint64_t> counted_[kStoreCounters] = {};
};

}  // namespace bam
