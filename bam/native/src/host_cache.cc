// C ABI of the host cache. A handle is a std::shared_ptr<HostCache>*: whoever needs the cache beyond its closing
// (a store) copies the shared pointer. Caller: bam/cache/host.py, which checks ids and closed handles.
#include <cerrno>
#include <cstdint>
#include <memory>

#include "bam/host_cache.h"
#include "guard.h"

namespace {

using Handle = std::shared_ptr<bam::HostCache>;

bam::HostCache& cache_of(void* handle) { return **static_cast<Handle*>(handle); }

// The line's word, for calls that may come without a pin and whose answer may be stale at once.
bam::LineWord word_of(void* handle, uint64_t line_id) {
  // acquire: pairs with the release in publish(), so bytes seen after a `valid` are there
  return std::atomic_ref<bam::LineWord>(cache_of(handle).state.lines[line_id]).load(std::memory_order_acquire);
}

}  // namespace

extern "C" {

// Where things lie: `memory` is n_pages times page_bytes; `frames` null: line i has page memory i.
struct BamCacheView {
  const uint8_t* memory;
  uint64_t* words;
  uint64_t* metas;
  bam::SetState* sets;
  uint64_t n_sets;
  uint64_t ways;
  uint64_t state_bytes;
  uint32_t* frames;
  uint64_t n_pages;
};

// 0 and a handle, or an errno.
int bam_cache_create(uint64_t n_lines, uint32_t page_bytes, uint32_t policy, uint64_t seed, void** handle) {
  return bam::guarded(ENOMEM, [&]() -> int {
    int error = 0;
    auto cache = bam::HostCache::create({n_lines, page_bytes, static_cast<bam::Policy>(policy), seed}, &error);
    if (cache == nullptr) return error;
    *handle = new Handle(std::move(cache));
    return 0;
  });
}

void bam_cache_destroy(void* handle) { delete static_cast<Handle*>(handle); }

void bam_cache_view(void* handle, BamCacheView* view) {
  const bam::HostCache& cache = cache_of(handle);
  *view = {cache.memory(),      cache.state.lines,   cache.state.metas,          cache.state.sets,  cache.state.n_sets,
           cache.state.ways, cache.state_bytes(), cache.state.frames.of_line, cache.n_pages()};
}

// line_id << 2 | outcome.
uint64_t bam_cache_acquire(void* handle, uint64_t page_id, uint64_t next_use) {
  bam::Acquired acquired = cache_of(handle).acquire(page_id, next_use);
  return acquired.line_id << 2 | static_cast<uint64_t>(acquired.outcome);
}

// The next three return EINVAL, and do nothing, where the line's word says that the caller cannot be entitled.
int bam_cache_publish(void* handle, uint64_t line_id) {
  if (bam::state_of(word_of(handle, line_id)) != bam::LineState::reading) return EINVAL;
  cache_of(handle).publish(line_id);
  return 0;
}

int bam_cache_fail(void* handle, uint64_t line_id, uint64_t reason) {
  if (bam::state_of(word_of(handle, line_id)) != bam::LineState::reading) return EINVAL;
  cache_of(handle).fail(line_id, reason);
  return 0;
}

int bam_cache_unpin(void* handle, uint64_t line_id) {
  if (bam::pins_of(word_of(handle, line_id)) == 0) return EINVAL;
  cache_of(handle).unpin(line_id);
  return 0;
}

void bam_cache_note_use(void* handle, uint64_t page_id, uint64_t next_use) {
  bam::note_use<bam::HostPlatform>(cache_of(handle).state, page_id, next_use);
}

void bam_cache_forget_uses(void* handle, uint64_t horizon, uint64_t instead) {
  bam::forget_uses<bam::HostPlatform>(cache_of(handle).state, horizon, instead);
}

uint64_t bam_cache_word(void* handle, uint64_t line_id) { return word_of(handle, line_id); }

uint64_t bam_cache_failure(void* handle, uint64_t line_id) { return cache_of(handle).failure(line_id); }

}  // extern "C"
