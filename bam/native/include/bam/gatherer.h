// One thread's gather: plan pages, read what is missing, deliver rows.
//
// Rows become pieces, one per page they touch; rows that follow each other in the file and in the output are one
// piece. A piece is a hit (copied at once), joins a read in flight, or starts a Fetch. Fetches are sorted and
// merged into ranges block by block, over small holes too, and read through a SpanReader.
//
// Decisions do not depend on when reads finish: the lines a call has claimed stay pinned for one to two chunks of
// fetches and are looked up in the call's own table first. So one thread's counts repeat exactly.
//
// When a range fails, its pages are read alone; when a page fails, the pieces that need it are read alone. So an
// error reaches exactly the rows whose bytes cannot be read.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bam/span_reader.h"
#include "bam/store.h"
#include "bam/stream_copy.h"

namespace bam {

constexpr uint32_t kNone = ~uint32_t{0};

// A part of the output that comes from one page.
struct Piece {
  uint8_t* out;
  uint32_t page_offset;
  uint32_t length;
  uint64_t position;  // index of the piece's first row in the caller's ids
  uint32_t next;      // piece that waits for the same fetch
};

// A page this call reads, or (exact) the bytes of one piece alone.
struct Fetch {
  uint64_t page_id;
  uint64_t slot;  // cached: line claimed and pinned; else: page of the chunk's spare memory
  uint32_t first_piece;
  uint32_t chunk;
  bool cached;
  bool exact;
  bool done;
};

// A page somebody else is reading; its line is pinned.
struct ForeignJoin {
  uint64_t line_id;
  uint64_t page_id;
  uint32_t piece;
};

// A hit that is pinned but not yet copied.
struct Held {
  uint64_t line_id;
  Piece piece;
};

constexpr uint32_t kGroup = 32;  // rows looked up, pinned and copied together

// Consecutive fetches of Gatherer::order_ that are one read; there may be holes between their pages.
struct Range {
  uint32_t first;
  uint32_t count;
};

// Page id -> fetch, for the fetches of one chunk. Open addressing; at most half full.
class PendingTable {
 public:
  void clear();
  uint32_t find(uint64_t page_id) const;
  void insert(uint64_t page_id, uint32_t fetch);
  // So that the next insert() does not allocate.
  void make_room() {
    if (2 * (size_ + 1) > slots_.size()) grow();
  }

 private:
  struct Slot {
    uint64_t page_id;
    uint32_t fetch = kNone;
  };
  void grow();
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
  uint32_t size_ = 0;
};

class Gatherer {
 public:
  static std::unique_ptr<Gatherer> create(Store& store, std::string* error);

  // Returns true when nothing is left in flight, so the gatherer can serve the next call.
  bool run(const GatherRequest& request, GatherResult* result, StoreCounters* counters);
  // After a run() that returned false: whether the reads it gave up have ended by now, so that it can serve again.
  bool settled();
  // After a run() that threw, for lack of memory: drops every pin. Then nothing but close() and the destructor.
  void give_up();
  // See SpanReader::close().
  uint32_t close(uint32_t wait_ms) { return reader_->close(wait_ms); }

 private:
  enum class Source : uint8_t { hit, joined, storage };
  struct Span {
    uint64_t address;  // logical
    uint32_t length;
  };

  Gatherer(Store& store, std::unique_ptr<SpanReader> reader);
  void begin(const GatherRequest& request, GatherResult* result, StoreCounters* counters);
  bool ids_in_range();
  void plan_all();
  void stay_in_bounds();
  uint64_t page_address(uint64_t page_id) const { return page_id * store_.config().page_bytes; }
  uint32_t page_length(uint64_t page_id) const;

  // gather_plan.cc
  uint64_t run_length(uint64_t position) const;
  uint64_t next_use_of(const Piece& piece) const;
  uint64_t out_row(uint64_t position) const {
    return request_.out_rows ? static_cast<uint64_t>(request_.out_rows[position]) : position;
  }
  void look_ahead(uint64_t position);
  uint64_t cached_as(uint64_t page_id) const { return store_.config().first_page_id + page_id; }
  uint64_t first_page(uint64_t position) const {
    return static_cast<uint64_t>(request_.ids[position]) * request_.row_bytes / store_.config().page_bytes;
  }
  void plan_run(uint64_t position, uint64_t n_rows);
  Source plan_piece(uint64_t page_id, const Piece& piece, uint64_t next_use, uint64_t hint);
  Source look_up(uint64_t page_id, const Piece& piece, uint64_t next_use);
  Source hold(uint64_t line_id, const Piece& piece);
  Source join_foreign(uint64_t line_id, uint64_t page_id, const Piece& piece);
  void copy_held();
  void make_room();
  Source join(uint32_t fetch_id, const Piece& piece, uint64_t next_use);
  void start_fetch(uint64_t page_id, const Acquired& acquired, const Piece& piece);
  uint32_t add_piece(const Piece& piece);
  uint32_t find_pending(uint64_t page_id) const;
  void count_rows(uint64_t position, uint64_t n_rows);

  // gather_read.cc
  void close_block();
  void close_chunk();
  void start_ranges();
  Span span_of(const Range& range) const;
  void read_exactly(uint32_t piece_id, uint64_t page_id);
  void advance(uint32_t wait_us);
  void wait_for(uint32_t parity, bool everything);
  void retire(uint32_t first, uint32_t end);
  static void on_range(void* gatherer, const RangeResult& result);
  void on_page(Fetch& fetch, const uint8_t* bytes);
  void on_exact(Fetch& fetch, const RangeResult& result);
  void on_page_failure(uint32_t fetch_id);
  void poll_foreign();
  void note_error(const Piece& piece, const GatherResult& error);
  void finish();
  void abandon();
  uint8_t* bytes_of(const Fetch& fetch);
  void deliver(const Piece& piece, const uint8_t* bytes) const {
    if (streaming_) copy_streaming(piece.out, bytes, piece.length);
    else std::memcpy(piece.out, bytes, piece.length);
  }

  Store& store_;
  std::unique_ptr<SpanReader> reader_;
  uint32_t chunk_fetches_;               // fetches in a chunk, before the last run is added

  // One call's state
  GatherRequest request_ = {};
  GatherResult* result_ = nullptr;
  StoreCounters* counters_ = nullptr;
  std::vector<Piece> pieces_;
  std::vector<Fetch> fetches_;
  std::vector<uint32_t> block_;          // fetches planned but not yet turned into ranges
  std::vector<uint32_t> order_;          // fetches in the order of their ranges
  std::vector<Range> ranges_;
  uint64_t next_range_ = 0;              // first range not yet started
  std::vector<ForeignJoin> foreign_;
  uint64_t hints_[kGroup];               // where the first pages of the next rows seemed to be
  uint64_t hints_begin_ = 0;             // position of the first of them
  std::vector<Held> held_;               // hits not yet copied; none while anything is awaited or inserted
  std::vector<Source> sources_;          // of the pages of the run being planned
  PendingTable pending_[2];              // by parity of the chunk
  std::vector<uint8_t> spare_[2];        // pages read but not cached, by parity
  uint64_t spare_pages_[2] = {0, 0};
  uint64_t open_[2] = {0, 0};            // fetches not yet done, by parity
  uint64_t open_exact_ = 0;
  uint32_t chunk_ = 0;
  uint32_t chunk_first_ = 0;             // first fetch of the current chunk
  uint32_t previous_first_ = 0;          // and of the chunk before
  bool timed_out_ = false;
  bool streaming_ = false;               // the output is too large to stay in cache
};

}  // namespace bam
