#include "bam/span_reader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <vector>

#include "fork_guard.h"
#include "leftovers.h"
#include "staging.h"

namespace bam {
namespace {

constexpr uint32_t kMaxRangeBytes = 1u << 30;
constexpr uint32_t kHarvest = 256;

using Clock = std::chrono::steady_clock;

uint64_t align_down(uint64_t value, uint64_t unit) { return value / unit * unit; }
uint64_t align_up(uint64_t value, uint64_t unit) { return align_down(value + unit - 1, unit); }

// One run of a range: the aligned span around it, read into the range's slot.
struct Piece {
  uint64_t offset;    // of the span, in the file
  uint32_t file;
  uint32_t length;    // of the span
  uint32_t lead;      // bytes of the span before the run
  uint32_t needed;    // bytes of the span up to the end of the run
  uint32_t position;  // of the span in the slot
  uint32_t done;      // bytes of the span that are there; a multiple of the file's unit
  uint32_t stalls;    // attempts without progress

  uint64_t first_missing(uint64_t got) const { return offset + std::max<uint64_t>(lead, got); }
};

struct Slot {
  uint64_t tag;
  uint32_t length;
  uint32_t n_pieces;
  uint32_t unfinished;  // pieces queued or in flight
  int error;
  uint32_t error_file;
  uint64_t error_offset;
  uint8_t* destination;  // of the caller; null: the slot's own bytes
};

class Reader final : public SpanReader {
 public:
  Reader(Engine& engine, const Layout& layout, uint32_t max_range_bytes, const ReadBuffers& buffers)
      : engine_(engine.shared_from_this()), layout_(layout), max_range_bytes_(max_range_bytes), buffers_(buffers) {
    for (const FileInfo& file : engine.files()) units_.push_back(std::max(file.offset_alignment, file.memory_alignment));
    looked_at_.assign(engine.files().size(), 0);
    max_pieces_ = most_runs(layout, max_range_bytes);
    slots_.resize(size_t{buffers.n_short} + buffers.n_long);
    pieces_.resize(slots_.size() * max_pieces_);
    for (uint32_t slot = buffers.n_short; slot-- > 0;) free_.push_back(slot);
    for (uint32_t slot = static_cast<uint32_t>(slots_.size()); slot-- > buffers.n_short;) free_long_.push_back(slot);
  }
  ~Reader() override { close(kCloseWaitMs); }
  uint32_t close(uint32_t wait_ms) override;

  bool open(std::string* error);

  bool can_start(uint32_t length) const override { return !free_slots(length).empty(); }
  void start(uint64_t logical_offset, uint32_t length, uint64_t tag) override {
    start_into(logical_offset, length, tag, nullptr, 0);
  }
  void start_into(uint64_t logical_offset, uint32_t length, uint64_t tag, uint8_t* destination,
                  uint32_t capacity) override;
  void register_destinations(void* base, size_t bytes) override { channel_->register_buffer(base, bytes); }
  uint32_t advance(uint32_t wait_us, OnDone on_done, void* context) override;
  uint32_t in_flight() const override {
    return static_cast<uint32_t>(slots_.size() - free_.size() - free_long_.size());
  }
  const ReaderCounters& counters() const override { return counters_; }

 private:
  Piece& piece(uint32_t id) { return pieces_[id]; }
  uint8_t* slot_bytes(uint32_t slot) const {
    if (slot < buffers_.n_short) return staging_->base() + slot * buffers_.short_slot_bytes;
    return staging_->base() + buffers_.n_short * buffers_.short_slot_bytes +
           (slot - buffers_.n_short) * buffers_.long_slot_bytes;
  }
  const std::vector<uint32_t>& free_slots(uint32_t length) const {
    return length <= buffers_.short_range_bytes ? free_ : free_long_;
  }
  void add_piece(uint32_t slot, const FileRun& run, uint64_t* position);
  bool fits(uint32_t slot, const uint8_t* destination, uint32_t capacity) const;
  void submit();
  void harvest(uint32_t wait_us);
  void complete(uint32_t id, int64_t result);
  void take_bytes(uint32_t id, uint64_t bytes);
  bool stall(uint32_t id);
  void fail(uint32_t id, int error, uint64_t file_offset);
  void finish_piece(uint32_t id);
  void fail_all_after_fork();
  void check_files(uint32_t slot);
  const uint8_t* join_pieces(uint32_t slot);
  uint32_t report(OnDone on_done, void* context);

  std::shared_ptr<Engine> engine_;
  Layout layout_;
  uint32_t max_range_bytes_;
  const ReadBuffers buffers_;
  uint32_t max_pieces_ = 1;
  std::vector<uint32_t> units_;      // per file: spans start and go on at multiples of this
  std::vector<uint64_t> looked_at_;  // per file: the batch in which it was looked at last
  std::vector<FileLook> looks_;
  uint64_t batch_ = 0;
  std::vector<Slot> slots_;
  std::vector<Piece> pieces_;        // slot * max_pieces_ + number of the piece; that is also its tag
  std::vector<uint32_t> free_, free_long_;  // slots
  std::vector<uint32_t> finished_, reporting_;
  std::vector<uint32_t> pending_;    // pieces to be submitted, in order, from pending_next_
  size_t pending_next_ = 0;
  std::vector<ReadRequest> requests_;
  std::vector<ReadCompletion> completions_;
  ReaderCounters counters_;
  ForkGuard fork_;
  std::unique_ptr<Staging> staging_;  // outlives the channel's reads
  std::unique_ptr<Channel> channel_;
};

bool Reader::open(std::string* error) {
  if (buffers_.long_slot_bytes > UINT32_MAX) {
    *error = "ranges of " + std::to_string(max_range_bytes_) + " bytes fall into too many runs";
    return false;
  }
  size_t staging_bytes = buffers_.bytes();
  staging_ = std::make_unique<Staging>(staging_bytes);
  if (staging_->base() == nullptr) {
    *error = "no memory for " + std::to_string(staging_bytes) + " bytes of read buffers";
    return false;
  }
  channel_ = engine_->open_channel(buffers_.n_short, error);
  if (channel_ == nullptr) return false;
  channel_->register_buffer(staging_->base(), staging_->bytes());
  requests_.resize(channel_->depth());
  completions_.resize(std::min(kHarvest, channel_->depth()));
  looks_.resize(units_.size());
  finished_.reserve(slots_.size());
  reporting_.reserve(slots_.size());
  pending_.reserve(slots_.size());
  return true;
}

uint32_t Reader::close(uint32_t wait_ms) {
  if (channel_ == nullptr) return 0;
  if (fork_.forked()) {
    (void)channel_.release();  // its rings and threads are the parent's
    return 0;
  }
  uint32_t left = await_reads(*channel_, wait_ms);
  if (left > 0) leave_behind(std::move(channel_), std::move(staging_));
  else channel_.reset();
  return left;
}

void Reader::start_into(uint64_t logical_offset, uint32_t length, uint64_t tag, uint8_t* destination,
                        uint32_t capacity) {
  std::vector<uint32_t>& free = length <= buffers_.short_range_bytes ? free_ : free_long_;
  uint32_t slot = free.back();
  free.pop_back();
  slots_[slot] = {tag, length, 0, 0, 0, 0, logical_offset, nullptr};
  bool outside = length > max_range_bytes_ || logical_offset > layout_.logical_bytes ||
                 length > layout_.logical_bytes - logical_offset;
  if (outside || length == 0 || fork_.forked()) {
    slots_[slot].error = fork_.forked() ? ECHILD : outside ? EINVAL : 0;
    finished_.push_back(slot);
    return;
  }
  uint64_t position = 0;
  for (uint64_t done = 0; done < length;) {
    FileRun run = locate(layout_, logical_offset + done, length - done);
    add_piece(slot, run, &position);
    done += run.length;
  }
  if (fits(slot, destination, capacity)) slots_[slot].destination = destination;
}

// Whether the range's one span can be read to that place as it is.
bool Reader::fits(uint32_t slot, const uint8_t* destination, uint32_t capacity) const {
  const Piece& read = pieces_[size_t{slot} * max_pieces_];
  return destination != nullptr && slots_[slot].n_pieces == 1 && read.lead == 0 && read.length <= capacity &&
         reinterpret_cast<uintptr_t>(destination) % units_[read.file] == 0;
}

void Reader::add_piece(uint32_t slot, const FileRun& run, uint64_t* position) {
  const FileInfo& file = engine_->files()[run.file];
  uint32_t id = slot * max_pieces_ + slots_[slot].n_pieces;
  uint64_t offset = align_down(run.file_offset, file.offset_alignment);
  uint32_t lead = static_cast<uint32_t>(run.file_offset - offset);
  uint32_t needed = lead + static_cast<uint32_t>(run.length);
  uint32_t length = static_cast<uint32_t>(align_up(needed, file.offset_alignment));
  *position = align_up(*position, units_[run.file]);
  piece(id) = {offset, run.file, length, lead, needed, static_cast<uint32_t>(*position), 0, 0};
  *position += length;
  slots_[slot].n_pieces++;
  slots_[slot].unfinished++;
  pending_.push_back(id);
}

void Reader::submit() {
  while (pending_next_ < pending_.size()) {
    size_t count = std::min(requests_.size(), pending_.size() - pending_next_);
    for (size_t i = 0; i < count; i++) {
      uint32_t id = pending_[pending_next_ + i];
      const Piece& asked = piece(id);
      uint32_t slot = id / max_pieces_;
      uint8_t* given = slots_[slot].destination;
      uint8_t* destination = given != nullptr ? given : slot_bytes(slot) + asked.position;
      requests_[i] = {destination + asked.done, asked.offset + asked.done, asked.length - asked.done, asked.file, id};
    }
    uint32_t taken = channel_->submit(requests_.data(), static_cast<uint32_t>(count));
    pending_next_ += taken;
    if (taken < count) break;
  }
  // Drops what was submitted, rarely enough that moving the rest costs nothing.
  if (pending_next_ * 2 >= pending_.size()) {
    pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(pending_next_));
    pending_next_ = 0;
  }
}

void Reader::harvest(uint32_t wait_us) {
  uint32_t got = channel_->poll(completions_.data(), static_cast<uint32_t>(completions_.size()), wait_us);
  for (uint32_t i = 0; i < got; i++) complete(static_cast<uint32_t>(completions_[i].tag), completions_[i].result);
}

void Reader::complete(uint32_t id, int64_t result) {
  counters_.reads++;
  const Piece& read = piece(id);
  if (result == -EINTR || result == -EAGAIN) {
    if (!stall(id)) fail(id, static_cast<int>(-result), read.first_missing(read.done));
  } else if (result < 0) {
    fail(id, static_cast<int>(-result), read.first_missing(read.done));
  } else if (result > read.length - read.done) {
    fail(id, EIO, read.first_missing(read.done));  // more than was asked for: nothing about it can be trusted
  } else {
    take_bytes(id, static_cast<uint64_t>(result));
  }
}

// A read brought `bytes` more, perhaps too few.
void Reader::take_bytes(uint32_t id, uint64_t bytes) {
  counters_.bytes_read += bytes;
  Piece& read = piece(id);
  uint64_t got = read.done + bytes;
  if (got >= read.needed) return finish_piece(id);
  uint64_t next = align_down(got, units_[read.file]);
  if (next > read.done) {
    read.done = static_cast<uint32_t>(next);
    read.stalls = 0;
    counters_.retries++;
    pending_.push_back(id);
  } else if (read.offset + read.needed > engine_->bytes_now(read.file)) {
    fail(id, ENODATA, read.first_missing(got));
  } else if (!stall(id)) {
    fail(id, EIO, read.first_missing(got));
  }
}

// Asks again, unless that was done too often without progress.
bool Reader::stall(uint32_t id) {
  if (++piece(id).stalls > kMaxStalls) return false;
  counters_.retries++;
  pending_.push_back(id);
  return true;
}

void Reader::fail(uint32_t id, int error, uint64_t file_offset) {
  Slot& slot = slots_[id / max_pieces_];
  if (slot.error == 0) {
    slot.error = error;
    slot.error_file = piece(id).file;
    slot.error_offset = file_offset;
  }
  finish_piece(id);
}

// The slot is free again only when no piece is being read into it, whatever became of the others.
void Reader::finish_piece(uint32_t id) {
  uint32_t slot = id / max_pieces_;
  if (--slots_[slot].unfinished == 0) finished_.push_back(slot);
}

// In a child nothing completes any more: the ring's memory and the threads are the parent's.
void Reader::fail_all_after_fork() {
  for (uint32_t slot = 0; slot < slots_.size(); slot++) {
    if (slots_[slot].unfinished == 0) continue;
    const Piece& first = piece(slot * max_pieces_);
    slots_[slot].unfinished = 0;
    slots_[slot].error = ECHILD;
    slots_[slot].error_file = first.file;
    slots_[slot].error_offset = first.offset + first.lead;
    finished_.push_back(slot);
  }
  pending_.clear();
  pending_next_ = 0;
}

// Looks at each file of the slot once per batch; every byte handed out arrived before the look. Bytes behind the end
// of a file that was cut are not handed out either: nothing says any more that they are the old ones.
void Reader::check_files(uint32_t slot) {
  for (uint32_t i = 0; i < slots_[slot].n_pieces && slots_[slot].error == 0; i++) {
    const Piece& read = piece(slot * max_pieces_ + i);
    if (looked_at_[read.file] != batch_) {
      looked_at_[read.file] = batch_;
      looks_[read.file] = engine_->look(read.file);
    }
    const FileLook& look = looks_[read.file];
    bool cut = look.bytes < read.offset + read.needed;
    if (look.error == 0 && !cut) continue;
    slots_[slot].error = look.error != 0 ? look.error : ENODATA;
    slots_[slot].error_file = read.file;
    slots_[slot].error_offset = read.offset + read.lead;
    if (look.error == 0) slots_[slot].error_offset = std::max(slots_[slot].error_offset, look.bytes);
  }
}

// Moves the later runs down behind the first; each moves to a lower address than any that is still to move.
const uint8_t* Reader::join_pieces(uint32_t slot) {
  if (slots_[slot].destination != nullptr) return slots_[slot].destination;
  const Piece* pieces = &pieces_[size_t{slot} * max_pieces_];
  uint8_t* base = slot_bytes(slot);
  uint8_t* end = base + pieces[0].needed;
  for (uint32_t i = 1; i < slots_[slot].n_pieces; i++) {
    uint32_t length = pieces[i].needed - pieces[i].lead;
    std::memmove(end, base + pieces[i].position + pieces[i].lead, length);
    end += length;
  }
  return base + pieces[0].lead;
}

uint32_t Reader::report(OnDone on_done, void* context) {
  reporting_.swap(finished_);
  batch_++;
  for (uint32_t slot : reporting_) {
    if (!fork_.forked()) check_files(slot);
    const Slot& done = slots_[slot];
    bool bytes = done.error == 0;
    if (!bytes) counters_.failures++;
    const uint8_t* data = !bytes ? nullptr : done.n_pieces == 0 ? staging_->base() : join_pieces(slot);
    on_done(context, {done.tag, data, done.length, done.error, done.error_file, done.error_offset});
    slots_[slot].n_pieces = 0;
    (slot < buffers_.n_short ? free_ : free_long_).push_back(slot);
  }
  uint32_t reported = static_cast<uint32_t>(reporting_.size());
  reporting_.clear();
  return reported;
}

uint32_t Reader::advance(uint32_t wait_us, OnDone on_done, void* context) {
  if (fork_.forked()) {
    fail_all_after_fork();
    return report(on_done, context);
  }
  Clock::time_point deadline = Clock::now() + std::chrono::microseconds(wait_us);
  submit();
  harvest(finished_.empty() ? wait_us : 0);
  while (wait_us > 0 && finished_.empty() && in_flight() > 0) {
    // only reads to be asked for again came back, or none
    Clock::duration left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) break;
    submit();
    harvest(static_cast<uint32_t>(std::chrono::ceil<std::chrono::microseconds>(left).count()));
  }
  return report(on_done, context);
}

}  // namespace

std::unique_ptr<SpanReader> SpanReader::create(Engine& engine, const Layout& layout, const ReadLimits& limits,
                                               std::string* error) {
  std::string ignored;
  if (error == nullptr) error = &ignored;
  *error = layout_problem(layout, engine.files().size());
  bool possible = limits.depth > 0 && limits.depth <= kMaxChannelDepth && limits.max_range_bytes > 0 &&
                  limits.max_range_bytes <= kMaxRangeBytes;
  if (error->empty() && !possible) *error = "a reader needs a depth of 1 to 32768 and ranges of 1 byte to 1 GiB";
  if (!error->empty()) return nullptr;
  try {
    auto reader = std::make_unique<Reader>(engine, layout, limits.max_range_bytes, read_buffers(engine, layout, limits));
    if (reader->open(error)) return reader;
  } catch (const std::exception&) {  // bad_alloc, or length_error of an absurd size
    *error = "no memory for a reader of depth " + std::to_string(limits.depth);
  }
  return nullptr;
}

}  // namespace bam
