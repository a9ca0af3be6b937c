// When the rows of a mini-batch are needed again: exact inside the window, estimated beyond it.
//
// What gids.fetch.window and gids.fetch.forecast do on the host, for one row at a time: the same numbers in every bit.
#pragma once

#include "bam/platform.h"

namespace gids {

// Next uses from here on are estimates: a batch number is always below.
constexpr uint64_t kHorizon = uint64_t{1} << 40;
constexpr uint64_t kUnknownUse = kHorizon + (kHorizon - 1) / 2;
constexpr double kColdest = static_cast<double>(kHorizon - 1);
// A row is never taken for dead: that share of its count is always still to come.
constexpr double kFloor = 0.02;

constexpr uint32_t kMaxTables = 32, kMaxLater = 64;

enum class Estimate : uint64_t {
  unknown,  // nothing is known
  runs,     // a hot-first store's degrees: rows up to run_ends[i] are needed at run_uses[i]
  counts,   // requests of an epoch, less what it asked for already
};

// What is known of one table's rows, for a whole run.
struct UseTable {
  uint64_t row_bytes;
  uint64_t first_byte;        // of the table, in the store; a page's beginning
  uint64_t n_rows;
  Estimate estimate;
  const int64_t* run_ends;
  const uint64_t* run_uses;   // one more than ends: of rows beyond the last
  uint64_t n_runs;
  const uint8_t* levels;      // of each row: index into UseRequest::counts
  uint8_t* seen;              // of each row: requests in this epoch
};
static_assert(sizeof(UseTable) == 72, "ABI");

// A later mini-batch in the window: the pages it reads, rising.
struct LaterBatch {
  const int64_t* pages;
  uint64_t n_pages;
  uint64_t number;
};

struct UseRequest {
  const UseTable* tables;
  const int64_t* rows;          // of all tables, one after the other
  uint64_t* uses;               // of each row
  const float* counts;          // that a level stands for
  double passed, correction;    // of the epoch, and `k` of gids.fetch.forecast
  uint32_t n_tables, n_later;
  uint32_t page_shift;
  uint32_t begins;              // 0: uses hold what nearer batches gave
  uint64_t firsts[kMaxTables + 1];  // where the rows of each table begin; then their end
  LaterBatch later[kMaxLater];  // the nearest first
};
static_assert(sizeof(UseRequest) == 64 + 8 * (kMaxTables + 1) + 24 * kMaxLater, "ABI");

BAM_HD inline bool reads_page(const LaterBatch& batch, int64_t page) {
  uint64_t low = 0, high = batch.n_pages;
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if (batch.pages[middle] < page) low = middle + 1;
    else high = middle;
  }
  return low < batch.n_pages && batch.pages[low] == page;
}

BAM_HD inline uint64_t use_by_runs(const UseTable& table, uint64_t row, uint32_t page_shift) {
  // Of the page's first row: colder rows in it do not make it colder.
  auto hottest = static_cast<int64_t>(((row * table.row_bytes >> page_shift) << page_shift) / table.row_bytes);
  uint64_t low = 0, high = table.n_runs;
  while (low < high) {
    uint64_t middle = (low + high) / 2;
    if (table.run_ends[middle] <= hottest) low = middle + 1;
    else high = middle;
  }
  return table.run_uses[low];
}

BAM_HD inline double to_come(double count, double seen, double passed, double correction) {
  double left = (1 - passed) * count - correction * (seen - passed * count), least = kFloor * count;
  return left > least ? left : least;
}

BAM_HD inline uint64_t use_by_counts(const UseRequest& request, const UseTable& table, uint64_t row) {
  uint64_t page_bytes = uint64_t{1} << request.page_shift, page = row * table.row_bytes >> request.page_shift;
  uint64_t first = (page * page_bytes + table.row_bytes - 1) / table.row_bytes;
  uint64_t end = ((page + 1) * page_bytes + table.row_bytes - 1) / table.row_bytes;
  if (end > table.n_rows) end = table.n_rows;
  double left = 0;
  for (uint64_t other = first < row ? first : row; other < (end > row + 1 ? end : row + 1); other++) {
    double count = static_cast<double>(request.counts[table.levels[other]]);
    left += to_come(count, static_cast<double>(table.seen[other]), request.passed, request.correction);
  }
  return kHorizon + static_cast<uint64_t>(kColdest / (1.0 + left));
}

BAM_HD inline uint64_t estimate_use(const UseRequest& request, const UseTable& table, uint64_t row) {
  switch (table.estimate) {
    case Estimate::runs: return use_by_runs(table, row, request.page_shift);
    case Estimate::counts: return use_by_counts(request, table, row);
    case Estimate::unknown: break;
  }
  return kUnknownUse;
}

BAM_HD inline const UseTable& table_of(const UseRequest& request, uint64_t position) {
  uint32_t number = 0;
  while (number + 1 < request.n_tables && request.firsts[number + 1] <= position) number++;
  return request.tables[number];
}

BAM_HD inline void find_next_use(const UseRequest& request, uint64_t position) {
  if (request.begins == 0 && request.uses[position] < kHorizon) return;
  const UseTable& table = table_of(request, position);
  auto row = static_cast<uint64_t>(request.rows[position]);
  uint64_t begin = table.first_byte + row * table.row_bytes;
  auto first = static_cast<int64_t>(begin >> request.page_shift);
  auto last = static_cast<int64_t>((begin + table.row_bytes - 1) >> request.page_shift);
  for (uint32_t i = 0; i < request.n_later; i++) {
    const LaterBatch& later = request.later[i];
    if (!reads_page(later, first) && (last == first || !reads_page(later, last))) continue;
    request.uses[position] = later.number;
    return;
  }
  if (request.begins != 0) request.uses[position] = estimate_use(request, table, row);
}

// The rows of a mini-batch are distinct, so no two threads count the same one.
BAM_HD inline void count_request(const UseRequest& request, uint64_t position) {
  const UseTable& table = table_of(request, position);
  if (table.estimate != Estimate::counts) return;
  uint8_t& seen = table.seen[request.rows[position]];
  if (seen < 255) seen++;
}

}  // namespace gids
