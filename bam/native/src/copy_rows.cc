// Rows from memory to memory: what a gather does for rows that are already there.
#include <cstdint>
#include <cstring>

namespace {
constexpr uint64_t kPrefetchAhead = 4;  // rows
constexpr uint64_t kPrefetchBytes = 512;
}  // namespace

extern "C" {

// Row from_rows[i] of `from` goes to row to_rows[i] of `to`; a null list stands for 0, 1, 2 ...
void bam_copy_rows(const uint8_t* from, const int64_t* from_rows, uint8_t* to, const int64_t* to_rows, uint64_t n,
                   uint64_t row_bytes) {
  auto source = [&](uint64_t i) { return from + (from_rows ? static_cast<uint64_t>(from_rows[i]) : i) * row_bytes; };
  for (uint64_t i = 0; i < n; i++) {
    if (i + kPrefetchAhead < n)
      for (uint64_t offset = 0; offset < row_bytes && offset < kPrefetchBytes; offset += 64)
        __builtin_prefetch(source(i + kPrefetchAhead) + offset);
    std::memcpy(to + (to_rows ? static_cast<uint64_t>(to_rows[i]) : i) * row_bytes, source(i), row_bytes);
  }
}

}  // extern "C"
