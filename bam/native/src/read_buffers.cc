#include "bam/read_buffers.h"

#include <algorithm>

namespace bam {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kLongStagingBytes = 8u << 20;  // of ranges longer than short ones, all together
constexpr uint64_t kMinLongRanges = 4;

uint64_t align_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes that a range of up to `range_bytes` may take: a span has less than one unit before its run and less than one
// behind, and starts at a multiple of one.
uint64_t slot_bytes(const Layout& layout, uint64_t range_bytes, uint64_t widest_unit) {
  uint64_t pieces = most_runs(layout, range_bytes);
  uint64_t padding = pieces == 1 ? widest_unit : pieces * 3 * widest_unit;
  return align_up(align_up(range_bytes, widest_unit) + padding, std::max(kPageBytes, widest_unit));
}

// How many slots fit: at least one.
uint32_t fitting(uint64_t wanted, uint64_t bytes, uint64_t slot) {
  return static_cast<uint32_t>(std::max<uint64_t>(1, std::min(wanted, bytes / slot)));
}

}  // namespace

// Most runs that a range of `bytes` can have.
uint32_t most_runs(const Layout& layout, uint64_t bytes) {
  if (layout.logical_bytes == 0) return 1;
  if (layout.extents == nullptr) return static_cast<uint32_t>((bytes + layout.stripe_bytes - 2) / layout.stripe_bytes + 1);
  uint64_t most = 1;
  for (uint64_t first = 0, last = 0; last < layout.n_extents; last++) {
    // the range may start at the last byte of `first`
    auto end_of = [&](uint64_t i) { return layout.extents[i].logical_offset + layout.extents[i].length; };
    while (layout.extents[last].logical_offset >= end_of(first) - 1 + bytes) first++;
    most = std::max(most, last - first + 1);
  }
  return static_cast<uint32_t>(most);
}

std::string layout_problem(const Layout& layout, size_t n_files) {
  if (layout.logical_bytes == 0) return "";
  if (layout.extents == nullptr) {
    if (layout.stripe_bytes == 0 || layout.n_files == 0) return "a striped layout needs stripe_bytes and n_files above 0";
    return layout.n_files <= n_files ? "" : "the layout has more files than the engine";
  }
  uint64_t logical = 0;
  for (uint64_t i = 0; i < layout.n_extents; i++) {
    const Extent& extent = layout.extents[i];
    if (extent.file >= n_files) return "an extent lies in a file that the engine does not have";
    if (extent.logical_offset != logical || extent.length == 0) return "the extents leave a gap, overlap or are empty";
    logical += extent.length;
  }
  return logical == layout.logical_bytes ? "" : "the extents do not add up to the layout's bytes";
}

ReadBuffers read_buffers(const Engine& engine, const Layout& layout, const ReadLimits& limits) {
  uint64_t widest = 1;
  for (const FileInfo& file : engine.files())
    widest = std::max<uint64_t>({widest, file.offset_alignment, file.memory_alignment});
  bool uniform = limits.short_range_bytes == 0 || limits.short_range_bytes >= limits.max_range_bytes;
  ReadBuffers buffers{};
  buffers.short_range_bytes = uniform ? limits.max_range_bytes : limits.short_range_bytes;
  buffers.short_slot_bytes = slot_bytes(layout, buffers.short_range_bytes, widest);
  buffers.long_slot_bytes = slot_bytes(layout, limits.max_range_bytes, widest);
  if (!uniform) {
    uint64_t wanted = std::min<uint64_t>(std::max(kLongStagingBytes / limits.max_range_bytes, kMinLongRanges), limits.depth);
    buffers.n_long = fitting(wanted, limits.staging_bytes / 2, buffers.long_slot_bytes);
  }
  uint64_t taken = buffers.n_long * buffers.long_slot_bytes;
  uint64_t left = limits.staging_bytes > taken ? limits.staging_bytes - taken : 0;
  buffers.n_short = fitting(limits.depth, left, buffers.short_slot_bytes);
  return buffers;
}

}  // namespace bam
