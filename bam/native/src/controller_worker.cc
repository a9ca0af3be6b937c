#include "controller_worker.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

namespace bam {
namespace {

using P = HostPlatform;
using Clock = std::chrono::steady_clock;

constexpr uint32_t kBurst = 64;         // commands taken from one queue before the next has its turn
constexpr uint32_t kMergeBurst = 256;   // the same where neighbours are looked for
constexpr uint32_t kMostCommands = 1u << 15;  // taken and not completed, where they are merged
constexpr uint32_t kYieldRounds = 64;   // rounds without news before a thread rests
constexpr uint32_t kFirstSleepUs = 20;
constexpr uint32_t kReadWaitUs = 50;    // doorbells are looked at again at least so often while reads are in flight
constexpr uint32_t kFinishWaitUs = 1000;

}  // namespace

bool ControllerWorker::open_reader(Engine& engine, std::string* error) {
  uint64_t most = config_.read_depth;
  ReadLimits limits{config_.read_depth, config_.max_transfer_bytes, 0, ~uint64_t{0}};
  if (merges()) {
    limits.max_range_bytes = config_.merge_bytes;
    limits.short_range_bytes = config_.max_transfer_bytes;
    most = std::max(most, std::min<uint64_t>(most * config_.merge_bytes / config_.max_transfer_bytes, kMostCommands));
  }
  most_commands_ = static_cast<uint32_t>(most);
  // No more are taken, so that serving them needs no further memory.
  commands_.reserve(most_commands_);
  waiting_.reserve(most_commands_);
  again_.reserve(most_commands_);
  reader_ = SpanReader::create(engine, layout_, limits, error);
  if (reader_ == nullptr) return false;
  if (config_.destination_bytes != 0) reader_->register_destinations(config_.destinations, config_.destination_bytes);
  return true;
}

// Out of memory (an engine may need some), the thread stops answering: a time-out of those who wait, not the end of the
// process.
void ControllerWorker::run() {
  for (auto phase : {&ControllerWorker::serve, &ControllerWorker::finish_reads, &ControllerWorker::abort_all}) {
    try {
      (this->*phase)();
    } catch (const std::exception&) {
      continue;
    }
  }
}

void ControllerWorker::serve() {
  // acquire: pairs with the release in SoftwareController::stop()
  for (uint32_t quiet_rounds = 0; !stopping_.load(std::memory_order_acquire);) {
    uint32_t news = serve_queues();
    news += advance(0);
    if (news == 0) news = rest(++quiet_rounds);
    if (news != 0) quiet_rounds = 0;
  }
}

// Waits for the reads in flight; those that do not end in time are given up, and their commands say so.
void ControllerWorker::finish_reads() {
  abort_unread();
  auto deadline = Clock::now() + std::chrono::milliseconds(config_.close_wait_ms);
  while ((reader_->in_flight() != 0 || !again_.empty()) && Clock::now() < deadline) {
    start_waiting();
    advance(kFinishWaitUs);
  }
  for (uint32_t tag = 0; tag < commands_.n_tags(); tag++) {
    if (!commands_[tag].outstanding) continue;
    counters_.aborted.add(1);
    finish(tag, {0, status_field(Status::abort_requested), ETIMEDOUT, 0});
  }
  counters_.left_behind.add(reader_->close(0));
}

// Commands that no read was started for.
void ControllerWorker::abort_unread() {
  while (!waiting_.empty()) {
    uint32_t tag = waiting_.front().first;
    waiting_.pop(1);
    counters_.aborted.add(1);
    finish(tag, {0, status_field(Status::aborted_sq_deletion), ECANCELED, 0});
  }
}

uint32_t ControllerWorker::serve_queues() {
  uint32_t news = 0, n_queues = static_cast<uint32_t>(queues_.size());
  if (waiting_.empty()) {
    for (uint32_t i = 0; i < n_queues; i++) news += serve_queue((first_queue_ + i) % n_queues);
    if (n_queues != 0) first_queue_ = (first_queue_ + 1) % n_queues;
    waiting_.order();
  }
  start_waiting();
  return news;
}

uint32_t ControllerWorker::serve_queue(uint32_t index) {
  ServedQueue& queue = queues_[index];
  uint32_t count = std::min(commands_to_fetch(queue), merges() ? kMergeBurst : kBurst);
  uint32_t fetched = 0;
  for (; fetched < count && can_begin(); fetched++) begin(index, fetch_command(queue.state, queue.cursor));
  return fetched;
}

bool ControllerWorker::can_begin() const {
  return commands_.count() < most_commands_ && (merges() || reader_->can_start(config_.max_transfer_bytes));
}

uint32_t ControllerWorker::commands_to_fetch(ServedQueue& queue) {
  if (!post_waiting(queue)) return 0;
  uint32_t waiting = commands_waiting<P>(queue.state, queue.cursor);
  bool invalid = waiting == kInvalidDoorbell;
  if (invalid && !queue.doorbell_reported) counters_.invalid_doorbells.add(1);
  queue.doorbell_reported = invalid;
  return invalid ? 0 : waiting;
}

void ControllerWorker::begin(uint32_t index, const Sqe& sqe) {
  ServedQueue& queue = queues_[index];
  counters_.commands.add(1);
  if (queue.cid_in_flight[sqe.cid]) {
    return answer(queue, {sqe.cid, status_field(Status::command_id_conflict, true), 0, 0});
  }
  queue.cid_in_flight[sqe.cid] = true;
  Status status = check(sqe);
  if (status != Status::success) return complete(queue, {sqe.cid, status_field(status, true), 0, 0});
  uint32_t tag = commands_.add({index, block_count(sqe), start_block(sqe), sqe.prp1, sqe.cid, true});
  if (merges()) return waiting_.add(tag);
  start_alone(tag);
}

Status ControllerWorker::check(const Sqe& sqe) const {
  if (sqe.opcode != static_cast<uint8_t>(Opcode::read)) return Status::invalid_opcode;
  if (sqe.flags != 0) return Status::invalid_field;  // no fused commands, no scatter-gather lists
  if (sqe.nsid != kNamespaceId) return Status::invalid_namespace;
  uint64_t n_blocks = block_count(sqe);
  if (n_blocks * kBlockBytes > config_.max_transfer_bytes) return Status::invalid_field;  // as for MDTS
  if (sqe.prp1 % 4 != 0) return Status::prp_offset_invalid;
  if (sqe.prp1 == 0) return Status::data_transfer_error;
  uint64_t blocks = (layout_.logical_bytes + kBlockBytes - 1) / kBlockBytes, slba = start_block(sqe);
  if (slba >= blocks || n_blocks > blocks - slba) return Status::lba_out_of_range;
  return Status::success;
}

// As many as there are buffers for, in order.
void ControllerWorker::start_waiting() {
  while (!again_.empty() && reader_->can_start(config_.max_transfer_bytes)) {
    start_alone(again_.back());
    again_.pop_back();
  }
  while (!waiting_.empty()) {
    ReadRun run = waiting_.front();
    if (!reader_->can_start(length_of(run.slba, run.end))) return;
    waiting_.pop(run.count);
    if (run.count > 1) counters_.commands_merged.add(run.count);
    start_run(run);
  }
}

void ControllerWorker::start_alone(uint32_t tag) {
  const Command& command = commands_[tag];
  start_run({tag, 1, command.slba, command.end(), true});
}

void ControllerWorker::start_run(const ReadRun& run) {
  uint32_t length = length_of(run.slba, run.end), capacity = static_cast<uint32_t>((run.end - run.slba) * kBlockBytes);
  uint8_t* destination = run.in_place ? reinterpret_cast<uint8_t*>(commands_[run.first].destination) : nullptr;
  reader_->start_into(run.slba * kBlockBytes, length, run.first, destination, run.in_place ? capacity : 0);
  reading_ += run.count;
  counters_.max_in_flight.at_least(reading_);
}

// Bytes of these blocks that the layout has: the last block may reach past its end.
uint32_t ControllerWorker::length_of(uint64_t slba, uint64_t end) const {
  return static_cast<uint32_t>(std::min(end * kBlockBytes, layout_.logical_bytes) - slba * kBlockBytes);
}

void ControllerWorker::on_read(const RangeResult& result) {
  uint32_t tag = static_cast<uint32_t>(result.tag);
  if (result.error != 0) return on_failure(tag, result);
  uint64_t slba = commands_[tag].slba;
  for (uint32_t next; tag != kNoCommand; tag = next) {
    const Command& command = commands_[tag];
    next = command.next;
    uint64_t offset = (command.slba - slba) * kBlockBytes;
    deliver(command, result.bytes + offset, result.length - offset);
    counters_.commands_read.add(1);
    counters_.bytes_useful.add(std::min<uint64_t>(command.n_blocks * kBlockBytes, result.length - offset));
    reading_--;
    finish(tag, {0, status_field(Status::success), 0, 0});
  }
}

// One command says why; several are read again, each alone, and then say so themselves.
void ControllerWorker::on_failure(uint32_t tag, const RangeResult& result) {
  const Command& command = commands_[tag];
  if (command.next == kNoCommand) {
    uint32_t number = errors_.add({command.slba, result.file_offset, command.n_blocks, result.file, 0, result.error});
    reading_--;
    return finish(tag, {0, status_field(status_of_errno(result.error)), static_cast<uint32_t>(result.error), number});
  }
  for (uint32_t next; tag != kNoCommand; tag = next) {
    next = commands_[tag].next;
    commands_[tag].next = kNoCommand;
    again_.push_back(tag);
    reading_--;
  }
}

// `there`: bytes from the command's first one on; what it asks for beyond them does not exist.
void ControllerWorker::deliver(const Command& command, const uint8_t* bytes, uint64_t there) {
  uint8_t* destination = reinterpret_cast<uint8_t*>(command.destination);
  uint64_t asked = uint64_t{command.n_blocks} * kBlockBytes, copied = std::min(asked, there);
  if (bytes != destination) std::memcpy(destination, bytes, copied);
  std::memset(destination + copied, 0, asked - copied);
}

// Completes a command; the completion's id is filled in.
void ControllerWorker::finish(uint32_t tag, Completion completion) {
  completion.cid = commands_[tag].cid;
  ServedQueue& queue = queues_[commands_[tag].queue];
  commands_.remove(tag);
  complete(queue, completion);
}

void ControllerWorker::complete(ServedQueue& queue, const Completion& completion) {
  queue.cid_in_flight[completion.cid] = false;
  answer(queue, completion);
}

void ControllerWorker::answer(ServedQueue& queue, const Completion& completion) {
  if (!succeeded(completion.status)) counters_.errors.add(1);
  if (queue.unposted.empty() && can_post<P>(queue.state, queue.cursor))
    return post_completion<P>(queue.state, queue.cursor, completion);
  queue.unposted.push_back(completion);
}

// True when nothing is left to post.
bool ControllerWorker::post_waiting(ServedQueue& queue) {
  while (!queue.unposted.empty() && can_post<P>(queue.state, queue.cursor)) {
    post_completion<P>(queue.state, queue.cursor, queue.unposted.front());
    queue.unposted.pop_front();
  }
  return queue.unposted.empty();
}

uint32_t ControllerWorker::advance(uint32_t wait_us) {
  if (reader_->in_flight() == 0) return 0;
  auto on_done = [](void* self, const RangeResult& result) { static_cast<ControllerWorker*>(self)->on_read(result); };
  uint32_t finished = reader_->advance(wait_us, on_done, this);
  counters_.reads.at_least(reader_->counters().reads);
  counters_.bytes_read.at_least(reader_->counters().bytes_read);
  return finished;
}

uint32_t ControllerWorker::rest(uint32_t quiet_rounds) {
  if (quiet_rounds <= kYieldRounds) {
    std::this_thread::yield();
    return 0;
  }
  if (reader_->in_flight() != 0) return advance(kReadWaitUs);
  uint32_t doublings = std::min(quiet_rounds - kYieldRounds - 1, 6u);
  counters_.idle_sleeps.add(1);
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(kFirstSleepUs << doublings, kLongestSleepUs)));
  return 0;
}

void ControllerWorker::abort_all() {
  for (ServedQueue& queue : queues_) abort_waiting(queue);
}

void ControllerWorker::abort_waiting(ServedQueue& queue) {
  for (uint32_t count = commands_to_fetch(queue); count > 0; count--) {
    Sqe sqe = fetch_command(queue.state, queue.cursor);
    counters_.commands.add(1);
    counters_.aborted.add(1);
    answer(queue, {sqe.cid, status_field(Status::aborted_sq_deletion), ECANCELED, 0});
  }
}

}  // namespace bam
