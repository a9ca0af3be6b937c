// Rows as pieces: the share that a row has of each page it touches.
//
// A batch is a list of row ids in one or more parts, one for each array (node type); all rows have one size. Rows of a
// part lie one after the other in the store's address space, from `first_byte` on. Piece number `row * pages_per_row
// + k` is the row's share of the k-th page it touches; a row that touches fewer pages has empty pieces.
#pragma once

#include "bam/device_store.h"

namespace bam {

// Rows of one array that are in memory for good: all of a range, or the members of a set, in rising order.
struct ConstantRows {
  const uint8_t* bytes;           // in pinned host memory or the GPU's
  uint64_t n_rows;                // that are there; the first of the range or set
  uint64_t first_row;             // of the range
  const uint64_t* words;          // the set as a bitmap; null: it is a range
  const uint64_t* ranks;          // members before each kWordsPerRank words
};
static_assert(sizeof(ConstantRows) == 40, "ABI");

constexpr uint32_t kWordsPerRank = 8;

BAM_HD inline uint32_t count_word_bits(uint64_t word) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__popcll(static_cast<long long>(word)));
#else
  return static_cast<uint32_t>(__builtin_popcountll(word));
#endif
}

// Where the row stands among the constant ones; at least n_rows when it is none of them.
BAM_HD inline uint64_t place_of(const ConstantRows& constant, uint64_t row_id) {
  if (constant.n_rows == 0) return 0;
  if (constant.words == nullptr) return row_id - constant.first_row;  // a row before the range gives a large number
  uint64_t at = row_id / 64, bit = uint64_t{1} << (row_id % 64);
  if ((constant.words[at] & bit) == 0) return constant.n_rows;
  uint64_t place = constant.ranks[at / kWordsPerRank];
  for (uint64_t before = at - at % kWordsPerRank; before < at; before++) place += count_word_bits(constant.words[before]);
  return place + count_word_bits(constant.words[at] & (bit - 1));
}

// Rows of one array in a batch.
struct BatchPart {
  uint64_t first_row;             // position in the batch
  uint64_t n_rows;                // of the array: ids are 0 .. n_rows - 1, or negative and count from the end
  uint64_t first_byte;            // of the array, in the store
  uint8_t* out;                   // rows of the part, or what out_rows points into
  const int64_t* out_rows;        // row of `out` for each row of the part; null: one after the other
  ConstantRows resident;          // in the GPU's memory; looked at first
  ConstantRows constant;          // in pinned host memory
};
static_assert(sizeof(BatchPart) == 120, "ABI");

constexpr uint32_t kFewParts = 4;

// The rows [first_row, first_row + n_rows) of a batch: what one flight takes.
struct RowBatch {
  const int64_t* ids;             // of the whole batch
  const uint64_t* next_use;       // of each id; null: never
  const BatchPart* parts;         // sorted by first_row; the first starts at 0. Null: they are in few_parts
  uint64_t first_row;
  uint32_t n_rows;
  uint32_t n_parts;
  uint32_t row_bytes;
  uint32_t pages_per_row;
  uint32_t flight;
  uint32_t reserved;
  BatchPart few_parts[kFewParts];  // so that most batches have nothing to upload

  BAM_HD uint32_t n_pieces() const { return n_rows * pages_per_row; }
  BAM_HD const BatchPart& part(uint32_t number) const { return parts != nullptr ? parts[number] : few_parts[number]; }
};
static_assert(sizeof(RowBatch) == 56 + kFewParts * sizeof(BatchPart), "ABI");

struct Piece {
  uint64_t page_id;
  uint32_t in_page;   // first byte
  uint32_t length;    // 0: there is none
  uint8_t* out;
  const uint8_t* constant;  // where its bytes are if the row is a constant one, else null
  bool resident;      // and that is the GPU's memory
  bool in_range;      // false: the id is not a row
};

// Number of the part that the row at this position is of.
BAM_HD inline uint32_t part_number(const RowBatch& batch, uint64_t row) {
  uint32_t low = 0, high = batch.n_parts;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    if (batch.part(middle).first_row <= row) low = middle;
    else high = middle;
  }
  return low;
}

// Row of a piece, in its flight. A division takes a GPU as long as the rest of piece_of().
BAM_HD inline uint32_t row_of(const RowBatch& batch, uint32_t number) {
  return batch.pages_per_row == 1 ? number : number / batch.pages_per_row;
}

BAM_HD inline Piece piece_of(const RowBatch& batch, uint32_t page_shift, uint32_t number) {
  uint32_t row_in_flight = row_of(batch, number), k = number - row_in_flight * batch.pages_per_row;
  uint64_t row = batch.first_row + row_in_flight;
  const BatchPart& part = batch.part(part_number(batch, row));
  int64_t id = batch.ids[row];
  if (id < 0) id += static_cast<int64_t>(part.n_rows);
  uint64_t row_id = static_cast<uint64_t>(id);  // a negative id is a large one now
  if (row_id >= part.n_rows) return {0, 0, k == 0 ? batch.row_bytes : 0, nullptr, nullptr, false, false};
  uint64_t begin = part.first_byte + row_id * batch.row_bytes, end = begin + batch.row_bytes;
  uint64_t page_id = (begin >> page_shift) + k, page_begin = page_id << page_shift;
  uint64_t from = begin > page_begin ? begin : page_begin;
  uint64_t page_end = page_begin + (uint64_t{1} << page_shift), to = end < page_end ? end : page_end;
  if (from >= to) return {0, 0, 0, nullptr, nullptr, false, true};
  uint64_t out_row = row - part.first_row;
  if (part.out_rows != nullptr) out_row = static_cast<uint64_t>(part.out_rows[out_row]);
  uint8_t* out = part.out + out_row * batch.row_bytes + (from - begin);
  uint64_t place = place_of(part.resident, row_id), in_row = from - begin;
  bool resident = place < part.resident.n_rows;
  const uint8_t* constant = resident ? part.resident.bytes + place * batch.row_bytes + in_row : nullptr;
  if (!resident) {
    place = place_of(part.constant, row_id);
    if (place < part.constant.n_rows) constant = part.constant.bytes + place * batch.row_bytes + in_row;
  }
  auto in_page = static_cast<uint32_t>(from - page_begin), length = static_cast<uint32_t>(to - from);
  return {page_id, in_page, length, out, constant, resident, true};
}

// Where the bytes of a piece are, from submit_rows to gather_rows: `kind << 56 | line`, and kCopied.
enum class SourceKind : uint32_t {
  none,      // an empty piece
  constant,  // in pinned host memory, for good
  resident,  // in the GPU's memory, for good
  hit,       // in a line
  joined,    // in a line that somebody else is reading
  claimed,   // in the slot, from where they go to the line
  bypass,    // in the slot
  lost,      // nowhere; its errno stands for the line, and results[slot] may say more
};

BAM_HD constexpr uint64_t make_source(SourceKind kind, uint64_t line_id) {
  return static_cast<uint64_t>(kind) << 56 | line_id;
}
// They are in the output already.
constexpr uint64_t kCopied = uint64_t{1} << 55;
BAM_HD constexpr SourceKind kind_of(uint64_t source) { return static_cast<SourceKind>(source >> 56); }
BAM_HD constexpr uint64_t line_of(uint64_t source) { return source & (kCopied - 1); }

// The claimed line of a read that failed: whoever joined it learns that from the line, this batch from the source.
template <class P>
BAM_HD void lose_line(const DeviceStore& store, uint64_t slot, uint64_t source, uint64_t error) {
  fail_with<P>(store.cache, line_of(source), error);
  unpin<P>(store.cache.lines[line_of(source)]);
  store.sources[slot] = make_source(SourceKind::lost, error);
}

}  // namespace bam
