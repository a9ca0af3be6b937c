// The store and its C ABI.
#include "bam/store.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "bam/gatherer.h"
#include "engine_registry.h"
#include "guard.h"
#include "leftovers.h"

namespace bam {

namespace {
using Clock = std::chrono::steady_clock;
constexpr uint32_t kShortRangeBytes = 16u << 10;  // most ranges are no longer, so longer ones share a little memory
constexpr size_t kIdleGatherers = 16;  // kept for later calls; more run at a time if more threads call
}

Store::Store(std::shared_ptr<Engine> engine, const Layout& layout, std::shared_ptr<HostCache> cache,
             StoreConfig config)
    : engine_(std::move(engine)), layout_(layout), cache_(std::move(cache)), config_(config) {
  if (layout.extents == nullptr) return;
  extents_.assign(layout.extents, layout.extents + layout.n_extents);
  layout_.extents = extents_.data();
}

Store::~Store() = default;

ReadLimits Store::read_limits() const {
  uint32_t longest = std::max(config_.merge_bytes, config_.page_bytes);
  return {config_.queue_depth, longest, std::max(kShortRangeBytes, config_.page_bytes), config_.staging_bytes};
}

uint32_t Store::close(uint32_t wait_ms) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto deadline = Clock::now() + std::chrono::milliseconds(wait_ms);
  uint32_t left = 0;
  for (auto& gatherer : abandoned_) {
    int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    left += gatherer->close(static_cast<uint32_t>(std::max<int64_t>(ms, 0)));
  }
  abandoned_.clear();
  idle_.clear();
  return left;
}

std::unique_ptr<Gatherer> Store::borrow(std::string* error) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    take_back_settled();
    if (!idle_.empty()) {
      std::unique_ptr<Gatherer> gatherer = std::move(idle_.back());
      idle_.pop_back();
      return gatherer;
    }
  }
  return Gatherer::create(*this, error);
}

// A disk that stalls again and again must not cost a set of read buffers each time.
void Store::take_back_settled() {
  for (size_t i = abandoned_.size(); i-- > 0;) {
    if (!abandoned_[i]->settled()) continue;
    if (idle_.size() < kIdleGatherers) idle_.push_back(std::move(abandoned_[i]));
    abandoned_.erase(abandoned_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Store::give_back(std::unique_ptr<Gatherer> gatherer) {
  std::lock_guard<std::mutex> guard(mutex_);
  if (idle_.size() < kIdleGatherers) idle_.push_back(std::move(gatherer));
}

void Store::count(const StoreCounters& delta) {
  const uint64_t* values = reinterpret_cast<const uint64_t*>(&delta);
  for (uint32_t i = 0; i < kStoreCounters; i++)
    if (values[i]) counted_[i].fetch_add(values[i], std::memory_order_relaxed);
}

StoreCounters Store::counters() const {
  StoreCounters sum;
  uint64_t* values = reinterpret_cast<uint64_t*>(&sum);
  for (uint32_t i = 0; i < kStoreCounters; i++) values[i] = counted_[i].load(std::memory_order_relaxed);
  return sum;
}

int Store::gather(const GatherRequest& request, GatherResult* result, std::string* error) {
  std::unique_ptr<Gatherer> gatherer = borrow(error);
  if (!gatherer) return -EIO;
  StoreCounters delta = {};
  bool clean = false;
  try {
    clean = gatherer->run(request, result, &delta);
  } catch (...) {
    gatherer->give_up();
    throw;
  }
  count(delta);
  if (clean) {
    give_back(std::move(gatherer));
  } else {
    std::lock_guard<std::mutex> guard(mutex_);
    abandoned_.push_back(std::move(gatherer));
  }
  return 0;
}

}  // namespace bam

namespace {

struct StoreHandle {
  bam::Store store;
};

}  // namespace

extern "C" {

// Makes a store over an engine handle and a cache handle; both stay alive as long as the store. Null: a handle is
// closed.
void* bam_store_create(void* engine, void* cache, const bam::Layout* layout, const bam::StoreConfig* config) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    std::shared_ptr<bam::Engine> shared_engine = bam::find_engine(engine);
    auto& shared_cache = *static_cast<std::shared_ptr<bam::HostCache>*>(cache);
    if (!shared_engine || !shared_cache) return nullptr;
    return new StoreHandle{{shared_engine, *layout, shared_cache, *config}};
  });
}

// Waits at most `wait_ms` for reads that calls gave up. Returns how many were left behind, with their memory.
uint32_t bam_store_destroy(void* store, uint32_t wait_ms) {
  StoreHandle* handle = static_cast<StoreHandle*>(store);
  uint32_t left = handle->store.close(wait_ms);
  delete handle;
  return left;
}

int bam_store_gather(void* store, const bam::GatherRequest* request, bam::GatherResult* result, char* error,
                     uint64_t error_bytes) {
  return bam::guarded(-ENOMEM, [&]() -> int {
    std::string reason;
    int status = static_cast<StoreHandle*>(store)->store.gather(*request, result, &reason);
    bam::copy_text(reason, error, error_bytes);
    return status;
  });
}

// Rows that will be used again, and when; see note_use().
void bam_store_note_uses(void* store, const int64_t* ids, const uint64_t* next_use, uint64_t n_ids,
                         uint64_t row_bytes) {
  bam::Store& rows = static_cast<StoreHandle*>(store)->store;
  uint64_t page_bytes = rows.config().page_bytes, first_page_id = rows.config().first_page_id;
  for (uint64_t i = 0; i < n_ids; i++) {
    uint64_t begin = static_cast<uint64_t>(ids[i]) * row_bytes, last = begin + row_bytes - 1;
    for (uint64_t page = begin / page_bytes; page <= last / page_bytes; page++)
      bam::note_use<bam::HostPlatform>(rows.cache().state, first_page_id + page, next_use[i]);
  }
}

// Uses before `horizon` become `instead`, in the whole cache; see forget_uses().
void bam_store_forget_uses(void* store, uint64_t horizon, uint64_t instead) {
  bam::forget_uses<bam::HostPlatform>(static_cast<StoreHandle*>(store)->store.cache().state, horizon, instead);
}

// Reads in flight of one thread, and the bytes of the buffers they go to.
void bam_store_read_buffers(void* store, uint32_t* reads, uint64_t* bytes) {
  bam::Store& rows = static_cast<StoreHandle*>(store)->store;
  bam::ReadBuffers buffers = bam::read_buffers(rows.engine(), rows.layout(), rows.read_limits());
  *reads = buffers.n_short;
  *bytes = buffers.bytes();
}

// Memory of reads that had not ended when their reader closed.
uint64_t bam_bytes_left_behind() { return bam::bytes_left_behind(); }

void bam_store_counters(void* store, bam::StoreCounters* counters) {
  *counters = static_cast<StoreHandle*>(store)->store.counters();
}

}  // extern "C"
