// Planning half of a gather: which bytes are in memory, which are on their way, which must be read.
#include <algorithm>
#include <cstring>

#include "bam/gatherer.h"

namespace bam {

namespace {
constexpr uint32_t kRunPages = 64;      // longest run of rows planned at once, in pages (one row at least)
constexpr uint64_t kCacheLineBytes = 64;
constexpr uint64_t kPrefetchedBytes = 256;  // of a hit; the hardware sees the stream by then
}  // namespace

void PendingTable::clear() {
  if (size_ == 0) return;
  std::fill(slots_.begin(), slots_.end(), Slot{0, kNone});
  size_ = 0;
}

uint32_t PendingTable::find(uint64_t page_id) const {
  if (size_ == 0) return kNone;
  for (uint64_t at = mix64(page_id) & mask_;; at = (at + 1) & mask_) {
    if (slots_[at].fetch == kNone) return kNone;
    if (slots_[at].page_id == page_id) return slots_[at].fetch;
  }
}

void PendingTable::insert(uint64_t page_id, uint32_t fetch) {
  make_room();
  uint64_t at = mix64(page_id) & mask_;
  while (slots_[at].fetch != kNone) at = (at + 1) & mask_;
  slots_[at] = {page_id, fetch};
  size_++;
}

void PendingTable::grow() {
  std::vector<Slot> old;
  old.swap(slots_);
  slots_.resize(std::max<size_t>(4096, 2 * old.size()));
  mask_ = slots_.size() - 1;
  size_ = 0;
  for (const Slot& slot : old)
    if (slot.fetch != kNone) insert(slot.page_id, slot.fetch);
}

uint32_t Gatherer::page_length(uint64_t page_id) const {
  uint64_t left = store_.layout().logical_bytes - page_address(page_id);
  return static_cast<uint32_t>(std::min<uint64_t>(store_.config().page_bytes, left));
}

// Rows from `position` on that follow each other in the store and in the output.
uint64_t Gatherer::run_length(uint64_t position) const {
  const int64_t* ids = request_.ids;
  uint64_t most = std::max<uint64_t>(1, uint64_t{kRunPages} * store_.config().page_bytes / request_.row_bytes);
  uint64_t end = std::min(request_.n_ids, position + most), at = position + 1;
  while (at < end && ids[at] == ids[at - 1] + 1 && out_row(at) == out_row(at - 1) + 1) at++;
  return at - position;
}

// Finds out, without pinning anything, where the pages of the next rows seem to be, and asks for the memory that
// will be touched: these rows' bytes, and the words that the group after them will be looked up in. Pins are
// barriers, so all this would be slow between them.
void Gatherer::look_ahead(uint64_t position) {
  const CacheState& cache = store_.cache().state;
  uint64_t count = std::min<uint64_t>(kGroup, request_.n_ids - position);
  hints_begin_ = position;
  for (uint64_t i = 0; i < count; i++) {
    uint64_t page_id = cached_as(first_page(position + i));
    hints_[i] = peek<HostPlatform>(cache, page_id);
    if (hints_[i] == kNoLine) continue;
    __builtin_prefetch(&cache.metas[hints_[i]]);
    const uint8_t* bytes = store_.cache().line(hints_[i]);
    for (uint64_t offset = 0; offset < kPrefetchedBytes && offset < store_.config().page_bytes;
         offset += kCacheLineBytes)
      __builtin_prefetch(bytes + offset);
  }
  uint64_t end = std::min<uint64_t>(request_.n_ids, position + 2 * kGroup);
  for (uint64_t next = position + count; next < end; next++) {
    const LineWord* words = cache.lines + set_of(cache, cached_as(first_page(next))) * cache.ways;
    for (uint32_t way = 0; way < cache.ways; way += kCacheLineBytes / sizeof(LineWord)) __builtin_prefetch(words + way);
  }
}

// Of a page of which a run needs this piece: the latest that any of its rows says. A row that lies in two pages is
// needed again as soon as either of them is, so a row that lies in this page alone is the one that is exact.
uint64_t Gatherer::next_use_of(const Piece& piece) const {
  if (request_.next_use == nullptr) return kNever;
  uint64_t inside = static_cast<uint64_t>(piece.out - request_.out - out_row(piece.position) * request_.row_bytes);
  uint64_t n_rows = (inside + piece.length + request_.row_bytes - 1) / request_.row_bytes;
  return *std::max_element(request_.next_use + piece.position, request_.next_use + piece.position + n_rows);
}

void Gatherer::plan_run(uint64_t position, uint64_t n_rows) {
  uint64_t page_bytes = store_.config().page_bytes;
  uint64_t logical = static_cast<uint64_t>(request_.ids[position]) * request_.row_bytes;
  uint64_t left = n_rows * request_.row_bytes;
  uint8_t* out = request_.out + out_row(position) * request_.row_bytes;
  uint64_t hint = hints_[position - hints_begin_];
  sources_.clear();
  for (uint64_t done = 0; done < left && !timed_out_;) {
    uint64_t page_id = (logical + done) / page_bytes, inside = (logical + done) % page_bytes;
    uint64_t length = std::min(page_bytes - inside, left - done);
    Piece piece = {out + done, static_cast<uint32_t>(inside), static_cast<uint32_t>(length),
                   position + done / request_.row_bytes, kNone};
    sources_.push_back(plan_piece(page_id, piece, next_use_of(piece), done == 0 ? hint : kNoLine));
    done += length;
    if (sources_.size() % kRunPages == 0) stay_in_bounds();  // in the middle of a long row
  }
  if (!timed_out_) count_rows(position, n_rows);
}

namespace {

template <class T>
void room_for_one(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<size_t>(64, 2 * list.capacity()));
}

}  // namespace

// Nothing may throw between a pin and the note that it must be dropped, so the room for notes is there before.
void Gatherer::make_room() {
  room_for_one(pieces_);
  room_for_one(fetches_);
  room_for_one(block_);
  room_for_one(foreign_);
  pending_[chunk_ & 1].make_room();
}

Gatherer::Source Gatherer::plan_piece(uint64_t page_id, const Piece& piece, uint64_t next_use, uint64_t hint) {
  make_room();
  counters_->pages++;
  uint32_t pending = find_pending(page_id);
  if (pending != kNone) return join(pending, piece, next_use);
  const CacheState& cache = store_.cache().state;
  if (hint == kNoLine) return look_up(page_id, piece, next_use);
  PinResult pinned = try_pin<HostPlatform>(cache.lines[hint], cached_as(page_id));
  if (pinned == PinResult::reading) return join_foreign(hint, page_id, piece);
  if (pinned != PinResult::valid) return look_up(page_id, piece, next_use);
  on_hit<HostPlatform>(cache.policy, cache.metas[hint], next_use);
  return hold(hint, piece);
}

Gatherer::Source Gatherer::look_up(uint64_t page_id, const Piece& piece, uint64_t next_use) {
  const CacheState& cache = store_.cache().state;
  uint64_t line_id = 0, set_id = set_of(cache, cached_as(page_id));
  Found found = find_in_set<HostPlatform>(cache, set_id, cached_as(page_id), next_use, line_id);
  if (found == Found::valid) return hold(line_id, piece);
  if (found == Found::reading) return join_foreign(line_id, page_id, piece);
  copy_held();  // so that a hit does not keep its line from this page
  Acquired acquired = store_.cache().acquire(cached_as(page_id), next_use);
  if (acquired.outcome == Outcome::hit) return hold(acquired.line_id, piece);
  if (acquired.outcome == Outcome::joined) return join_foreign(acquired.line_id, page_id, piece);
  start_fetch(page_id, acquired, piece);
  return Source::storage;
}

// Pins and unpins are barriers that wait for every earlier store, so copies between them would not overlap. Hits
// are therefore pinned, copied and unpinned in groups.
Gatherer::Source Gatherer::hold(uint64_t line_id, const Piece& piece) {
  counters_->hits++;
  held_.push_back({line_id, piece});
  if (held_.size() == kGroup) copy_held();
  return Source::hit;
}

void Gatherer::copy_held() {
  for (const Held& held : held_)
    deliver(held.piece, store_.cache().line(held.line_id) + held.piece.page_offset);
  for (const Held& held : held_) store_.cache().unpin(held.line_id);
  held_.clear();
}

Gatherer::Source Gatherer::join_foreign(uint64_t line_id, uint64_t page_id, const Piece& piece) {
  counters_->joins++;
  foreign_.push_back({line_id, page_id, add_piece(piece)});
  return Source::joined;
}

Gatherer::Source Gatherer::join(uint32_t fetch_id, const Piece& piece, uint64_t next_use) {
  Fetch& fetch = fetches_[fetch_id];
  if (fetch.done && fetch.exact) {  // the page could not be read; perhaps these bytes of it can
    counters_->misses++;
    counters_->bypasses++;
    read_exactly(add_piece(piece), fetch.page_id);
    return Source::storage;
  }
  counters_->joins++;
  CacheState& cache = store_.cache().state;
  // The line is pinned by this call, so its meta word is still this page's.
  if (fetch.cached) on_hit<HostPlatform>(cache.policy, cache.metas[fetch.slot], next_use);
  if (fetch.done) {
    deliver(piece, bytes_of(fetch) + piece.page_offset);
  } else {
    uint32_t piece_id = add_piece(piece);
    pieces_[piece_id].next = fetch.first_piece;
    fetch.first_piece = piece_id;
  }
  return Source::joined;
}

void Gatherer::start_fetch(uint64_t page_id, const Acquired& acquired, const Piece& piece) {
  uint32_t parity = chunk_ & 1, fetch_id = static_cast<uint32_t>(fetches_.size());
  bool cached = acquired.outcome == Outcome::claimed;
  uint64_t slot = cached ? acquired.line_id : spare_pages_[parity]++;
  counters_->misses++;
  counters_->bypasses += !cached;
  fetches_.push_back({page_id, slot, add_piece(piece), chunk_, cached, false, false});
  pending_[parity].insert(page_id, fetch_id);
  block_.push_back(fetch_id);
  open_[parity]++;
}

uint32_t Gatherer::add_piece(const Piece& piece) {
  pieces_.push_back(piece);
  return static_cast<uint32_t>(pieces_.size() - 1);
}

uint32_t Gatherer::find_pending(uint64_t page_id) const {
  uint32_t found = pending_[chunk_ & 1].find(page_id);
  return found != kNone ? found : pending_[(chunk_ & 1) ^ 1].find(page_id);
}

// Rows are counted by the worst of their pages: storage, then joined, then hit.
void Gatherer::count_rows(uint64_t position, uint64_t n_rows) {
  uint64_t* counts[] = {&counters_->rows_hit, &counters_->rows_joined, &counters_->rows_storage};
  bool same = std::all_of(sources_.begin(), sources_.end(), [&](Source source) { return source == sources_[0]; });
  if (same) {
    *counts[static_cast<int>(sources_[0])] += n_rows;
    return;
  }
  uint64_t page_bytes = store_.config().page_bytes;
  uint64_t logical = static_cast<uint64_t>(request_.ids[position]) * request_.row_bytes;
  uint64_t first_page = logical / page_bytes;
  for (uint64_t row = 0; row < n_rows; row++) {
    uint64_t begin = logical + row * request_.row_bytes, last = begin + request_.row_bytes - 1;
    Source worst = Source::hit;
    for (uint64_t page = begin / page_bytes; page <= last / page_bytes; page++)
      worst = std::max(worst, sources_[page - first_page]);
    *counts[static_cast<int>(worst)] += 1;
  }
}

}  // namespace bam
