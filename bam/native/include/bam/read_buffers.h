// How much memory a reader's ranges land in, and what of it each may take.
#pragma once

#include <cstdint>
#include <string>

#include "bam/engine.h"
#include "bam/extent.h"

namespace bam {

struct ReadLimits {
  uint32_t depth;              // ranges in flight
  uint32_t max_range_bytes;    // longest range
  uint32_t short_range_bytes;  // most are no longer; 0: all may be of the longest
  uint64_t staging_bytes;      // of all buffers; at least one range of each kind gets one even so
};

// `n_short` slots for ranges up to `short_range_bytes`, then `n_long` for longer ones.
struct ReadBuffers {
  uint32_t short_range_bytes;
  uint32_t n_short;
  uint32_t n_long;
  uint64_t short_slot_bytes;
  uint64_t long_slot_bytes;

  uint64_t bytes() const { return n_short * short_slot_bytes + n_long * long_slot_bytes; }
};

ReadBuffers read_buffers(const Engine& engine, const Layout& layout, const ReadLimits& limits);

// Most runs that a range of `bytes` can have.
uint32_t most_runs(const Layout& layout, uint64_t bytes);

// Empty, or why no range of the layout could be read from so many files.
std::string layout_problem(const Layout& layout, size_t n_files);

}  // namespace bam
