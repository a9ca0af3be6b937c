// The page cache in host memory: page_cache.h's logic over memory this class owns.
//
// Line memory is one anonymous mapping, touched only where a page is read into it, so a large cache costs what it
// holds. State is 16 bytes a line and 8 a set (with frames 20 a line, and a third more lines), in a mapping of its own
// that a forked child finds zeroed: to the child the cache is empty, and no set is locked by a thread that the child
// does not have.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "bam/page_cache.h"
#include "bam/platform.h"

namespace bam {

struct Geometry {
  uint64_t n_sets;
  uint32_t ways;
};

// As few sets as kMaxWays allows, all of one size; up to n_sets - 1 of the lines asked for stay unused.
// Python twin: bam/cache/geometry.py.
constexpr Geometry geometry(uint64_t n_lines) {
  uint64_t n_sets = n_lines / kMaxWays + (n_lines % kMaxWays != 0 ? 1 : 0);
  return {n_sets, static_cast<uint32_t>(n_lines / n_sets)};
}

// With frames: a third more lines than pages, as sets are not equally full. A set that all the same is full gives up
// a page of its own. One set needs no frames.
constexpr uint64_t kPagesPerSet = 24;
constexpr Geometry geometry_with_frames(uint64_t n_pages) {
  return {(n_pages + kPagesPerSet - 1) / kPagesPerSet, kMaxWays};
}

// Zeroed anonymous memory. Null after a failed create().
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Mapping() {
    if (base_ != nullptr) munmap(base_, mapped_bytes_);
  }

  // `bytes` bytes that start at a multiple of `alignment` (a power of two).
  static Mapping create(size_t bytes, size_t alignment) {
    Mapping mapping;
    size_t mapped_bytes = bytes + alignment;
    if (mapped_bytes < bytes) return mapping;
    // NORESERVE: lines that are never touched need no memory
    void* base =
        mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return mapping;
    mapping.base_ = base;
    mapping.mapped_bytes_ = mapped_bytes;
    uintptr_t address = reinterpret_cast<uintptr_t>(base);
    mapping.data_ = reinterpret_cast<uint8_t*>((address + alignment - 1) / alignment * alignment);
    return mapping;
  }

  uint8_t* data() const { return data_; }

 private:
  void swap(Mapping& other) {
    std::swap(base_, other.base_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
  }

  void* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
};

struct HostCacheSettings {
  uint64_t n_lines;     // at least 1; geometry() says how many are used; with frames all
  uint32_t page_bytes;  // a power of two
  Policy policy;
  uint64_t seed;
};

class HostCache {
 public:
  // Null, and an errno in `error`, when the settings cannot work (EINVAL) or the memory cannot be had (ENOMEM).
  static std::unique_ptr<HostCache> create(const HostCacheSettings& settings, int* error) {
    std::unique_ptr<HostCache> cache(new HostCache());
    *error = cache->allocate(settings);
    if (*error != 0) cache.reset();
    return cache;
  }

  CacheState state{};  // for page_cache.h's functions; points into this object's memory
  uint32_t page_bytes = 0;

  uint64_t n_lines() const { return state.n_sets * state.ways; }
  // Pages that fit in memory.
  uint64_t n_pages() const { return state.frames.of_line == nullptr ? n_lines() : state.frames.n_frames; }
  uint64_t state_bytes() const { return state_bytes_; }
  const uint8_t* memory() const { return line_memory_.data(); }
  // First of the `page_bytes` bytes of a line that holds a page; aligned to the smaller of page_bytes and 64 KiB.
  // For a line without a frame, as a hint can be that is out of date, it is that of some other page.
  uint8_t* line(uint64_t line_id) const {
    if (state.frames.of_line == nullptr) return line_memory_.data() + line_id * page_bytes;
    uint64_t frame = load_frame<HostPlatform>(state.frames, line_id);
    return line_memory_.data() + (frame == 0 ? 0 : frame - 1) * page_bytes;
  }

  Acquired acquire(uint64_t page_id, uint64_t next_use) {
    return bam::acquire<HostPlatform>(state, page_id, next_use);
  }
  void publish(uint64_t line_id) { bam::publish<HostPlatform>(state.lines[line_id]); }
  void fail(uint64_t line_id, uint64_t reason) { fail_with<HostPlatform>(state, line_id, reason); }
  void unpin(uint64_t line_id) { bam::unpin<HostPlatform>(state.lines[line_id]); }
  // State of a line on which the caller holds a pin.
  LineState line_state(uint64_t line_id) const { return await_once<HostPlatform>(state.lines[line_id]); }
  // Why a failed line on which the caller holds a pin could not be filled.
  uint64_t failure(uint64_t line_id) const { return load_meta<HostPlatform>(state.metas[line_id]); }

 private:
  static constexpr size_t kLineAlignment = size_t{1} << 16;
  static constexpr size_t kHugePage = size_t{1} << 21;
  static constexpr size_t kHugeFrom = 8 * kHugePage;  // below it, whole huge pages would waste too large a share

  HostCache() = default;

  int allocate(const HostCacheSettings& settings) {
    const uint64_t page = settings.page_bytes;
    if (settings.n_lines == 0 || page == 0 || (page & (page - 1)) != 0) return EINVAL;
    if (settings.policy > Policy::look_ahead_global) return EINVAL;
    if (settings.n_lines > (uint64_t{1} << 62) / page) return ENOMEM;
    const bool frames = settings.policy == Policy::look_ahead_global && settings.n_lines > kMaxWays;
    if (frames && settings.n_lines > kMaxFrames) return ENOMEM;
    Geometry shape = frames ? geometry_with_frames(settings.n_lines) : geometry(settings.n_lines);
    const uint64_t lines = shape.n_sets * shape.ways;
    const size_t line_bytes = (frames ? settings.n_lines : lines) * page;
    const bool huge = line_bytes >= kHugeFrom;
    line_memory_ = Mapping::create(line_bytes, huge ? kHugePage : kLineAlignment);
    const size_t counters_at = lines * kStateBytesPerLine + shape.n_sets * sizeof(SetState);
    const size_t frames_at = counters_at + kFrameCounters * sizeof(uint64_t);
    state_bytes_ = frames ? frames_at + lines * sizeof(uint32_t) : counters_at;
    state_memory_ = Mapping::create(state_bytes_, kLineAlignment);
    if (line_memory_.data() == nullptr || state_memory_.data() == nullptr) return ENOMEM;
    // Fewer TLB misses when rows are copied out; a kernel without huge pages only loses that.
    if (huge) madvise(line_memory_.data(), line_bytes, MADV_HUGEPAGE);
    // A child that is forked while a set is locked would wait for ever for that lock. Linux before 4.14 lacks this;
    // there the child is kept away by bam/cache/host.py alone, which closes every cache in a forked child.
    madvise(state_memory_.data(), state_bytes_, MADV_WIPEONFORK);
    uint8_t* at = state_memory_.data();
    state.lines = reinterpret_cast<LineWord*>(at);
    state.metas = reinterpret_cast<uint64_t*>(at + lines * sizeof(LineWord));
    state.sets = reinterpret_cast<SetState*>(at + lines * kStateBytesPerLine);
    state.n_sets = shape.n_sets;
    state.ways = shape.ways;
    state.policy = settings.policy;
    state.seed = settings.seed;
    if (frames)
      state.frames = {reinterpret_cast<uint32_t*>(at + frames_at), reinterpret_cast<uint64_t*>(at + counters_at),
                      settings.n_lines};
    page_bytes = settings.page_bytes;
    return 0;
  }

  Mapping line_memory_;
  Mapping state_memory_;
  size_t state_bytes_ = 0;
};

}  // namespace bam
