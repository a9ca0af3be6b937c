// A team is the threads that work on one tile together: a thread block on the GPU, one or more threads here.
//
// A Team provides
//   int64_t rank(), size()
//   void sync()                                   what any member wrote before, all members see after it
//   int64_t exclusive_sum(int64_t value, int64_t& total)   sum over the ranks below; called by all members
#pragma once

#include "bam/platform.h"

namespace gids {

struct OneThread {
  BAM_HD int64_t rank() const { return 0; }
  BAM_HD int64_t size() const { return 1; }
  BAM_HD void sync() const {}
  BAM_HD int64_t exclusive_sum(int64_t value, int64_t& total) const {
    total = value;
    return 0;
  }
};

// put(i, value(0) + ... + value(i - 1)) for each i below n; returns the total. A value is read before a put
// at or after its place.
template <class Team, class Value, class Put>
BAM_HD int64_t prefix_sums(Team& team, int64_t n, Value value, Put put) {
  constexpr int64_t kPerThread = 4;
  int64_t before = 0;
  for (int64_t start = 0; start < n; start += kPerThread * team.size()) {
    int64_t first = start + kPerThread * team.rank();
    int64_t values[kPerThread], sum = 0, total;
    for (int64_t j = 0; j < kPerThread; j++) {
      values[j] = first + j < n ? value(first + j) : 0;
      sum += values[j];
    }
    sum = before + team.exclusive_sum(sum, total);
    for (int64_t j = 0; j < kPerThread; j++) {
      if (first + j < n) put(first + j, sum);
      sum += values[j];
    }
    before += total;
  }
  return before;
}

}  // namespace gids
