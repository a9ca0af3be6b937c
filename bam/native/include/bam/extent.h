// Where logical bytes lie in files. Two forms, one look-up:
//   table    extents sorted by logical offset, without gaps
//   striped  units of `stripe_bytes` dealt to the files in turn; computed, no table
#pragma once

#include "bam/platform.h"

namespace bam {

struct Extent {
  uint64_t logical_offset;
  uint64_t length;
  uint64_t file_offset;
  uint32_t file;
  uint32_t reserved;
};
static_assert(sizeof(Extent) == 32, "ABI");

// A run of logical bytes that is contiguous in one file.
struct FileRun {
  uint64_t file_offset;
  uint64_t length;
  uint32_t file;
};

struct Layout {
  const Extent* extents;  // table form; null when striped
  uint64_t n_extents;
  uint64_t logical_bytes;
  uint64_t stripe_bytes;  // striped form
  uint32_t n_files;
};

// Index of the extent that holds `logical`.
BAM_HD inline uint64_t find_extent(const Layout& layout, uint64_t logical) {
  uint64_t low = 0, high = layout.n_extents;
  while (high - low > 1) {
    uint64_t middle = low + (high - low) / 2;
    if (layout.extents[middle].logical_offset <= logical) low = middle;
    else high = middle;
  }
  return low;
}

// The longest run that starts at `logical`, at most `length` bytes. `logical` must be below `logical_bytes`.
BAM_HD inline FileRun locate(const Layout& layout, uint64_t logical, uint64_t length) {
  if (layout.extents != nullptr) {
    const Extent& extent = layout.extents[find_extent(layout, logical)];
    uint64_t inside = logical - extent.logical_offset;
    uint64_t left = extent.length - inside;
    return {extent.file_offset + inside, length < left ? length : left, extent.file};
  }
  uint64_t stripe = logical / layout.stripe_bytes, inside = logical % layout.stripe_bytes;
  uint64_t left = layout.stripe_bytes - inside;
  uint32_t file = static_cast<uint32_t>(stripe % layout.n_files);
  return {stripe / layout.n_files * layout.stripe_bytes + inside, length < left ? length : left, file};
}

}  // namespace bam
