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
constexpr uint32_t kYieldRounds = 64;   // rounds without news before a thread rests
constexpr uint32_t kFirstSleepUs = 20;
constexpr uint32_t kReadWaitUs = 50;    // doorbells are looked at again at least so often while reads are in flight
constexpr uint32_t kFinishWaitUs = 1000;

}  // namespace

bool ControllerWorker::open_reader(Engine& engine, std::string* error) {
  // No more are in flight, so that serving them needs no further memory.
  commands_.reserve(config_.read_depth);
  free_tags_.reserve(config_.read_depth);
  reader_ = SpanReader::create(engine, layout_, config_.read_depth, config_.max_transfer_bytes, error);
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
    uint32_t news = 0;
    for (uint32_t index = 0; index < queues_.size(); index++) news += serve_queue(index);
    news += advance(0);
    if (news == 0) news = rest(++quiet_rounds);
    if (news != 0) quiet_rounds = 0;
  }
}

// Waits for the reads in flight; those that do not end in time are given up, and their commands say so.
void ControllerWorker::finish_reads() {
  auto deadline = Clock::now() + std::chrono::milliseconds(config_.close_wait_ms);
  while (reader_->in_flight() != 0 && Clock::now() < deadline) advance(kFinishWaitUs);
  for (InFlight& command : commands_) {
    if (!command.outstanding) continue;
    command.outstanding = false;
    counters_.aborted.add(1);
    complete(queues_[command.queue], {command.cid, status_field(Status::abort_requested), ETIMEDOUT, 0});
  }
  counters_.left_behind.add(reader_->close(0));
}

uint32_t ControllerWorker::serve_queue(uint32_t index) {
  ServedQueue& queue = queues_[index];
  uint32_t count = std::min(commands_to_fetch(queue), kBurst);
  uint32_t fetched = 0;
  for (; fetched < count && reader_->can_start(config_.max_transfer_bytes); fetched++) begin(index, fetch_command(queue.state, queue.cursor));
  return fetched;
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
  start_read(index, sqe);
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

void ControllerWorker::start_read(uint32_t index, const Sqe& sqe) {
  if (free_tags_.empty()) {
    free_tags_.push_back(static_cast<uint32_t>(commands_.size()));
    commands_.emplace_back();
  }
  uint32_t tag = free_tags_.back();
  free_tags_.pop_back();
  commands_[tag] = {index, block_count(sqe), start_block(sqe), sqe.prp1, sqe.cid, true};
  uint64_t first = start_block(sqe) * kBlockBytes;
  uint64_t length = std::min(uint64_t{block_count(sqe)} * kBlockBytes, layout_.logical_bytes - first);
  reader_->start_into(first, static_cast<uint32_t>(length), tag, reinterpret_cast<uint8_t*>(sqe.prp1),
                      block_count(sqe) * kBlockBytes);
  counters_.max_in_flight.at_least(reader_->in_flight());
}

void ControllerWorker::on_read(const RangeResult& result) {
  const InFlight command = commands_[result.tag];
  commands_[result.tag].outstanding = false;
  free_tags_.push_back(static_cast<uint32_t>(result.tag));
  Completion completion{command.cid, status_field(status_of_errno(result.error)), 0, 0};
  if (result.error == 0) {
    uint8_t* destination = reinterpret_cast<uint8_t*>(command.destination);
    if (result.bytes != destination) std::memcpy(destination, result.bytes, result.length);
    std::memset(destination + result.length, 0, uint64_t{command.n_blocks} * kBlockBytes - result.length);
  } else {
    completion.dw0 = static_cast<uint32_t>(result.error);
    completion.dw1 =
        errors_.add({command.slba, result.file_offset, command.n_blocks, result.file, 0, result.error});
  }
  complete(queues_[command.queue], completion);
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
