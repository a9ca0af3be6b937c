// Reading half of a gather: ranges out, bytes in, failures narrowed down to the rows that need the bytes.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "bam/gatherer.h"

namespace bam {

namespace {

constexpr uint32_t kBlockFetches = 256;        // sorted and merged together
constexpr uint32_t kChunkBytes = 2u << 20;     // spare memory of a chunk, when nothing can be cached
constexpr uint32_t kMaxChunkFetches = 512;
constexpr uint32_t kMinChunkFetches = 64;
constexpr uint64_t kMaxFetchesHeld = 65536;    // of a long call; then it drains and forgets them
constexpr uint32_t kWaitUs = 2000;
constexpr uint64_t kStreamingBytes = 4u << 20;  // outputs from here on do not stay in a core's cache anyway

using Clock = std::chrono::steady_clock;

}  // namespace

Gatherer::Gatherer(Store& store, std::unique_ptr<SpanReader> reader) : store_(store), reader_(std::move(reader)) {
  uint32_t fetches = kChunkBytes / store.config().page_bytes;
  held_.reserve(kGroup);
  chunk_fetches_ = std::clamp(fetches, kMinChunkFetches, kMaxChunkFetches);
}

std::unique_ptr<Gatherer> Gatherer::create(Store& store, std::string* error) {
  auto reader = SpanReader::create(store.engine(), store.layout(), store.read_limits(), error);
  if (!reader) return nullptr;
  return std::unique_ptr<Gatherer>(new Gatherer(store, std::move(reader)));
}

bool Gatherer::run(const GatherRequest& request, GatherResult* result, StoreCounters* counters) {
  begin(request, result, counters);
  if (!ids_in_range()) return true;
  ReaderCounters before = reader_->counters();
  plan_all();
  finish();
  streaming_done();
  const ReaderCounters& after = reader_->counters();
  counters->reads += after.reads - before.reads;
  counters->bytes_read += after.bytes_read - before.bytes_read;
  counters->retries += after.retries - before.retries;
  return !timed_out_;
}

void Gatherer::begin(const GatherRequest& request, GatherResult* result, StoreCounters* counters) {
  request_ = request;
  result_ = result;
  counters_ = counters;
  *result = {0, 0, 0, 0, 0, ~uint64_t{0}};
  timed_out_ = false;
  streaming_ = request.n_ids * request.row_bytes >= kStreamingBytes;
}

bool Gatherer::ids_in_range() {
  uint64_t n_rows = request_.row_bytes ? store_.layout().logical_bytes / request_.row_bytes : 0;
  for (uint64_t i = 0; i < request_.n_ids; i++) {
    if (static_cast<uint64_t>(request_.ids[i]) < n_rows) continue;
    result_->error = ERANGE;
    result_->position = i;
    return false;
  }
  counters_->gathers++;
  counters_->rows += request_.n_ids;
  counters_->bytes_useful += request_.n_ids * request_.row_bytes;
  return true;
}

void Gatherer::plan_all() {
  for (uint64_t position = 0; position < request_.n_ids && !timed_out_;) {
    if (position == 0 || position >= hints_begin_ + kGroup) look_ahead(position);
    uint64_t n_rows = run_length(position);
    plan_run(position, n_rows);
    position += n_rows;
    stay_in_bounds();
  }
}

// What is planned is read before it takes more memory, or pins more lines, than a call may.
void Gatherer::stay_in_bounds() {
  if (block_.size() >= kBlockFetches) {
    close_block();
    advance(0);
  }
  if (fetches_.size() - chunk_first_ >= chunk_fetches_) close_chunk();
  if (fetches_.size() >= kMaxFetchesHeld) finish();
}

// Turns the planned fetches into ranges of pages and starts as many as there is room for. A range goes on over a hole
// that costs less to read along than a second read would.
void Gatherer::close_block() {
  copy_held();
  std::sort(block_.begin(), block_.end(),
            [this](uint32_t a, uint32_t b) { return fetches_[a].page_id < fetches_[b].page_id; });
  uint64_t most = std::max<uint64_t>(1, store_.config().merge_bytes / store_.config().page_bytes);
  uint64_t bridged = store_.config().bridge_bytes / store_.config().page_bytes;
  size_t first_range = ranges_.size();  // ranges of earlier blocks may have started: they are not extended
  for (uint32_t fetch_id : block_) {
    uint64_t page_id = fetches_[fetch_id].page_id;
    bool extends = ranges_.size() > first_range && page_id - fetches_[order_.back()].page_id <= 1 + bridged &&
                   page_id - fetches_[order_[ranges_.back().first]].page_id < most;
    if (extends) ranges_.back().count++;
    else ranges_.push_back({static_cast<uint32_t>(order_.size()), 1});
    order_.push_back(fetch_id);
  }
  block_.clear();
  start_ranges();
}

void Gatherer::start_ranges() {
  for (; next_range_ < ranges_.size(); next_range_++) {
    Span span = span_of(ranges_[next_range_]);
    if (!reader_->can_start(span.length)) return;
    reader_->start(span.address, span.length, next_range_);
  }
}

Gatherer::Span Gatherer::span_of(const Range& range) const {
  const Fetch& first = fetches_[order_[range.first]];
  if (first.exact) {
    const Piece& piece = pieces_[first.first_piece];
    return {page_address(first.page_id) + piece.page_offset, piece.length};
  }
  uint64_t last_page = fetches_[order_[range.first + range.count - 1]].page_id;
  uint64_t end = page_address(last_page) + page_length(last_page);
  return {page_address(first.page_id), static_cast<uint32_t>(end - page_address(first.page_id))};
}

void Gatherer::advance(uint32_t wait_us) {
  start_ranges();
  reader_->advance(wait_us, &Gatherer::on_range, this);
  start_ranges();
  poll_foreign();
}

uint8_t* Gatherer::bytes_of(const Fetch& fetch) {
  if (fetch.cached) return store_.cache().line(fetch.slot);
  std::vector<uint8_t>& spare = spare_[fetch.chunk & 1];
  uint64_t begin = fetch.slot * store_.config().page_bytes, end = begin + store_.config().page_bytes;
  if (spare.size() < end) spare.resize(std::max<uint64_t>(end, 2 * spare.size()));
  return spare.data() + begin;
}

void Gatherer::on_range(void* gatherer, const RangeResult& result) {
  Gatherer& self = *static_cast<Gatherer*>(gatherer);
  Range range = self.ranges_[result.tag];
  Fetch& first = self.fetches_[self.order_[range.first]];
  if (first.exact) return self.on_exact(first, result);
  if (result.error == 0) {
    for (uint32_t i = 0; i < range.count; i++) {
      Fetch& fetch = self.fetches_[self.order_[range.first + i]];
      self.on_page(fetch, result.bytes + (fetch.page_id - first.page_id) * self.store_.config().page_bytes);
    }
    return;
  }
  if (range.count == 1) return self.on_page_failure(self.order_[range.first]);
  for (uint32_t i = 0; i < range.count; i++) {  // one of the pages cannot be read: find out which, each alone
    uint32_t fetch_id = self.order_[range.first + i];
    self.ranges_.push_back({static_cast<uint32_t>(self.order_.size()), 1});
    self.order_.push_back(fetch_id);
  }
}

void Gatherer::on_page(Fetch& fetch, const uint8_t* bytes) {
  std::memcpy(bytes_of(fetch), bytes, page_length(fetch.page_id));
  if (fetch.cached) store_.cache().publish(fetch.slot);
  for (uint32_t id = fetch.first_piece; id != kNone; id = pieces_[id].next)
    deliver(pieces_[id], bytes + pieces_[id].page_offset);
  fetch.done = true;
  open_[fetch.chunk & 1]--;
}

// The page as a whole cannot be read. Its pieces may be: the end of the page may be what is missing.
void Gatherer::on_page_failure(uint32_t fetch_id) {
  Fetch failed = fetches_[fetch_id];
  if (failed.cached) {
    store_.cache().fail(failed.slot, EIO);
    store_.cache().unpin(failed.slot);
  }
  fetches_[fetch_id].cached = false;  // nothing to unpin when the chunk retires
  fetches_[fetch_id].exact = true;    // and nothing to join: later pieces of the page read for themselves
  fetches_[fetch_id].done = true;
  open_[failed.chunk & 1]--;
  for (uint32_t id = failed.first_piece; id != kNone;) {
    uint32_t next = pieces_[id].next;
    pieces_[id].next = kNone;
    read_exactly(id, failed.page_id);
    id = next;
  }
}

void Gatherer::read_exactly(uint32_t piece_id, uint64_t page_id) {
  uint32_t fetch_id = static_cast<uint32_t>(fetches_.size());
  fetches_.push_back({page_id, 0, piece_id, chunk_, false, true, false});
  ranges_.push_back({static_cast<uint32_t>(order_.size()), 1});
  order_.push_back(fetch_id);
  open_exact_++;
}

void Gatherer::on_exact(Fetch& fetch, const RangeResult& result) {
  const Piece& piece = pieces_[fetch.first_piece];
  if (result.error == 0) {
    deliver(piece, result.bytes);
  } else {
    counters_->failures++;
    note_error(piece, {result.error, result.file, result.file_offset, result.length, fetch.page_id, 0});
  }
  fetch.done = true;
  open_exact_--;
}

void Gatherer::note_error(const Piece& piece, const GatherResult& error) {
  if (result_->error != 0 && result_->position <= piece.position) return;
  *result_ = error;
  result_->position = piece.position;
}

// Pages other threads are reading. Where their read fails, ours decides.
void Gatherer::poll_foreign() {
  for (size_t i = 0; i < foreign_.size();) {
    ForeignJoin join = foreign_[i];
    LineState state = store_.cache().line_state(join.line_id);
    if (state == LineState::reading) {
      i++;
      continue;
    }
    const Piece& piece = pieces_[join.piece];
    if (state == LineState::valid)
      deliver(piece, store_.cache().line(join.line_id) + piece.page_offset);
    else
      read_exactly(join.piece, join.page_id);
    store_.cache().unpin(join.line_id);
    foreign_[i] = foreign_.back();
    foreign_.pop_back();
  }
}

// Waits until the chunks of `parity` are done, or everything is.
void Gatherer::wait_for(uint32_t parity, bool everything) {
  auto outstanding = [&] {
    return (everything ? open_[0] + open_[1] + open_exact_ + foreign_.size() : open_[parity]) > 0;
  };
  auto progress = Clock::now();
  uint64_t last_open = ~uint64_t{0}, last_reads = 0;
  while (!timed_out_ && outstanding()) {
    bool own = reader_->in_flight() > 0 || next_range_ < ranges_.size();
    if (!own) HostPlatform::pause();  // only another thread's read is awaited
    advance(own ? (foreign_.empty() ? kWaitUs : 50) : 0);
    // Not their sum: a read that completes a page raises one and lowers the other.
    uint64_t open = open_[0] + open_[1] + open_exact_ + foreign_.size(), reads = reader_->counters().reads;
    if (open != last_open || reads != last_reads) {
      last_open = open;
      last_reads = reads;
      progress = Clock::now();
    } else if (Clock::now() - progress > std::chrono::milliseconds(store_.config().timeout_ms)) {
      timed_out_ = true;
    }
  }
}

// Begins a new chunk: the one before the current must be done, and gives its pins back.
void Gatherer::close_chunk() {
  close_block();
  uint32_t before = (chunk_ & 1) ^ 1;
  wait_for(before, false);
  if (timed_out_) return;
  retire(previous_first_, chunk_first_);
  pending_[before].clear();
  spare_pages_[before] = 0;
  previous_first_ = chunk_first_;
  chunk_first_ = static_cast<uint32_t>(fetches_.size());
  chunk_++;
}

void Gatherer::retire(uint32_t first, uint32_t end) {
  for (uint32_t id = first; id < end; id++) {
    Fetch& fetch = fetches_[id];
    if (!fetch.cached) continue;
    store_.cache().unpin(fetch.slot);
    fetch.cached = false;
  }
}

// Everything planned so far is delivered, or its error noted, and all pins are dropped.
void Gatherer::finish() {
  close_block();
  wait_for(0, true);
  if (timed_out_) abandon();
  retire(0, static_cast<uint32_t>(fetches_.size()));
  for (uint32_t parity : {0u, 1u}) {
    pending_[parity].clear();
    spare_pages_[parity] = 0;
  }
  pieces_.clear();
  fetches_.clear();
  order_.clear();
  ranges_.clear();
  next_range_ = 0;
  chunk_first_ = previous_first_ = 0;
  chunk_ = 0;
}

// Gives up what has not arrived: the lines are free for others, the reads end in staging memory nobody looks at.
void Gatherer::abandon() {
  HostCache& cache = store_.cache();
  for (Fetch& fetch : fetches_) {
    if (fetch.done) continue;
    if (fetch.cached) {
      cache.fail(fetch.slot, ETIMEDOUT);
      cache.unpin(fetch.slot);
      fetch.cached = false;
    }
    uint64_t address = page_address(fetch.page_id);
    FileRun run = locate(store_.layout(), address, page_length(fetch.page_id));
    for (uint32_t id = fetch.first_piece; id != kNone; id = pieces_[id].next)
      note_error(pieces_[id], {ETIMEDOUT, run.file, run.file_offset, run.length, fetch.page_id, 0});
  }
  for (const ForeignJoin& join : foreign_) {
    FileRun run = locate(store_.layout(), page_address(join.page_id), page_length(join.page_id));
    note_error(pieces_[join.piece], {ETIMEDOUT, run.file, run.file_offset, run.length, join.page_id, 0});
    cache.unpin(join.line_id);
  }
  foreign_.clear();
  block_.clear();
  open_[0] = open_[1] = open_exact_ = 0;
  counters_->failures++;
}

void Gatherer::give_up() {
  HostCache& cache = store_.cache();
  for (const Held& held : held_) cache.unpin(held.line_id);
  for (const ForeignJoin& join : foreign_) cache.unpin(join.line_id);
  for (const Fetch& fetch : fetches_) {
    if (!fetch.cached) continue;
    if (!fetch.done) cache.fail(fetch.slot, ENOMEM);
    cache.unpin(fetch.slot);
  }
  held_.clear();
  foreign_.clear();
  fetches_.clear();
}

bool Gatherer::settled() {
  reader_->advance(0, [](void*, const RangeResult&) {}, nullptr);
  return reader_->in_flight() == 0;
}

}  // namespace bam
