// Engine that reads an NVMe drive through its queue pairs, without the kernel.
//
// A file of this engine is a run of logical blocks of a namespace; its last block may be used in part. Reads are
// split into commands of at most a slot. Channels share the queue pairs: whoever drains hands completions to the
// channels they belong to. Drains are polled; a channel that waits long for nothing sleeps between looks.
#include "nvme_engine.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "engine_registry.h"
#include "failure.h"
#include "fork_guard.h"
#include "wrapper.h"

namespace bam {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kYieldRounds = 64;
constexpr uint32_t kSleepUs = 50;

struct FinishedPart {
  uint64_t part;
  uint16_t status;  // of the completion
  int error;        // errno; 0: success
};

// The part of a channel that completions reach; kept by outstanding commands, so it outlives an abandoned channel.
class PartBoard final : public CommandOwner {
 public:
  PartBoard(std::shared_ptr<NvmeDrive> drive, uint32_t parts) : drive_(std::move(drive)), pieces_(parts) {
    finished_.reserve(parts);  // finish() is called while a queue pair is drained, and must not throw
  }

  void finish(uint32_t pair, uint64_t part, const Completion& completion) override {
    int error = 0;
    if (succeeded(completion.status)) drive_->deliver(pieces_[part], pair, completion.cid);
    else error = errno_of(completion);
    std::lock_guard lock(mutex_);
    finished_.push_back({part, status_of(completion.status), error});
  }
  // Swaps, so that neither side allocates again; `into` has room for every part, too.
  void take_finished(std::vector<FinishedPart>* into) {
    into->clear();
    std::lock_guard lock(mutex_);
    into->swap(finished_);
  }
  Piece& piece(uint64_t part) { return pieces_[part]; }

 private:
  std::shared_ptr<NvmeDrive> drive_;
  std::vector<Piece> pieces_;  // by part; the channel writes one before its command is published
  std::mutex mutex_;           // guards finished_
  std::vector<FinishedPart> finished_;
};

struct Request {
  ReadRequest asked{};
  uint32_t bytes = 0;       // that the file has of it
  uint32_t parts_left = 0;
  uint32_t good_bytes = 0;  // before the first part that failed
  int error = 0;            // of that part, or why nothing was sent
};

struct Part {
  uint32_t request = 0;
  uint32_t offset = 0;  // in the request
};

class NvmeChannel final : public Channel {
 public:
  NvmeChannel(std::shared_ptr<NvmeEngine> engine, uint32_t depth);
  ~NvmeChannel() override;

  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return requests_.size(); }
  uint32_t in_flight() const override { return requests_.in_use(); }
  bool register_buffer(void* base, size_t bytes) override;

 private:
  void begin(const ReadRequest& asked);
  void send();
  uint32_t send_run(uint32_t pair);
  void look();
  void settle(const FinishedPart& done);
  void end_part(uint32_t slot, uint32_t offset, int error);
  void check_patience();
  uint32_t hand_out(ReadCompletion* completions, uint32_t capacity);
  uint32_t slot_bytes() const { return engine_->drive().config().slot_bytes; }

  std::shared_ptr<NvmeEngine> engine_;
  HostQueues& queues_;
  SlotPool<Request> requests_;
  SlotPool<Part> parts_;           // sent and not finished
  std::shared_ptr<PartBoard> board_;
  std::vector<FinishedPart> taken_;
  std::deque<Part> waiting_;       // not sent yet
  std::deque<uint32_t> completed_; // requests to hand out
  std::vector<void*> registered_;
  uint64_t epoch_ = 0;             // of the queues, when something was last heard of
  Clock::time_point heard_ = Clock::now();
  ForkGuard fork_;
};

// As many parts as the queue pairs can hold: more would only wait.
uint32_t most_parts(const NvmeEngine& engine) {
  return engine.drive().config().n_pairs * engine.drive().queues().pairs()[0].depth;
}

NvmeChannel::NvmeChannel(std::shared_ptr<NvmeEngine> engine, uint32_t depth)
    : engine_(std::move(engine)),
      queues_(engine_->drive().queues()),
      requests_(depth),
      parts_(most_parts(*engine_)),
      board_(std::make_shared<PartBoard>(engine_->shared_drive(), parts_.size())) {
  taken_.reserve(parts_.size());
}

NvmeChannel::~NvmeChannel() {
  if (fork_.forked()) return;
  ReadCompletion dropped[64];
  while (in_flight() > 0) poll(dropped, 64, 100'000);
  for (void* base : registered_) engine_->drive().space().unmap(base);
}

// The drive then writes to it directly; refused where addresses or lockable memory have run out.
bool NvmeChannel::register_buffer(void* base, size_t bytes) {
  uint64_t iova = 0;
  if (int error = engine_->drive().space().map(base, bytes, &iova)) {
    engine_->note_refused_buffer(error);
    return false;
  }
  registered_.push_back(base);
  return true;
}

uint32_t NvmeChannel::submit(const ReadRequest* requests, uint32_t count) {
  uint32_t taken = std::min(count, requests_.room());
  for (uint32_t i = 0; i < taken; i++) begin(requests[i]);
  send();
  return taken;
}

void NvmeChannel::begin(const ReadRequest& asked) {
  uint32_t slot = requests_.take();
  Request& request = requests_[slot] = Request{asked};
  int64_t readable = engine_->readable(asked);
  if (readable < 0) request.error = static_cast<int>(-readable);
  if (readable <= 0) {
    completed_.push_back(slot);
    return;
  }
  request.bytes = request.good_bytes = static_cast<uint32_t>(readable);
  for (uint32_t offset = 0; offset < request.bytes; offset += slot_bytes()) {
    waiting_.push_back({slot, offset});
    request.parts_left++;
  }
}

// Sends what waits, as far as there is credit.
void NvmeChannel::send() {
  uint32_t n_pairs = static_cast<uint32_t>(queues_.pairs().size());
  uint32_t pair = queues_.next_pair();
  for (uint32_t full = 0; !waiting_.empty() && full < n_pairs; pair = (pair + 1) % n_pairs)
    full = send_run(pair) == 0 ? full + 1 : 0;
}

uint32_t NvmeChannel::send_run(uint32_t pair) {
  uint64_t run = std::min<uint64_t>({waiting_.size(), parts_.room(), kRunCommands});
  if (parts_.in_use() == 0) {
    heard_ = Clock::now();
    epoch_ = queues_.epoch();
  }
  uint64_t numbers[kRunCommands];
  for (uint64_t i = 0; i < run; i++) {
    uint32_t number = parts_.take();
    numbers[i] = number;
    parts_[number] = waiting_[i];
    const Request& request = requests_[waiting_[i].request];
    uint32_t bytes = std::min(slot_bytes(), request.bytes - waiting_[i].offset);
    board_->piece(number) = engine_->piece(request.asked, waiting_[i].offset, bytes);
  }
  auto encode = [this](uint64_t number, uint32_t at, uint16_t cid) {
    return engine_->drive().encode(board_->piece(number), at, cid);
  };
  uint32_t sent = run == 0 ? 0 : queues_.submit_run(pair, 0, run, board_, encode, numbers);
  for (uint64_t i = sent; i < run; i++) parts_.give_back(static_cast<uint32_t>(numbers[i]));
  waiting_.erase(waiting_.begin(), waiting_.begin() + sent);
  return sent;
}

uint32_t NvmeChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
  Clock::time_point until = Clock::now() + std::chrono::microseconds(wait_us);
  for (uint32_t round = 0;; round++) {
    look();
    uint32_t got = hand_out(completions, capacity);
    if (got > 0 || in_flight() == 0 || Clock::now() >= until) return got;
    if (round < kYieldRounds) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(kSleepUs));
  }
}

// Takes what has completed, and sends what there is now room for.
void NvmeChannel::look() {
  for (uint32_t pair = 0; pair < queues_.pairs().size(); pair++) queues_.drain(pair);
  board_->take_finished(&taken_);
  for (const FinishedPart& done : taken_) settle(done);
  if (!taken_.empty()) heard_ = Clock::now(), epoch_ = queues_.epoch();
  send();
  if (!waiting_.empty() && queues_.life() != QueueLife::open) {
    for (const Part& part : std::exchange(waiting_, {})) end_part(part.request, part.offset, ENODEV);
  }
  if (taken_.empty()) check_patience();
}

void NvmeChannel::settle(const FinishedPart& done) {
  Part part = parts_[done.part];
  parts_.give_back(static_cast<uint32_t>(done.part));
  if (done.error != 0) engine_->note_failure(requests_[part.request].asked, part.offset, done.status, done.error);
  end_part(part.request, part.offset, done.error);
}

void NvmeChannel::end_part(uint32_t slot, uint32_t offset, int error) {
  Request& request = requests_[slot];
  if (error != 0 && offset < request.good_bytes) {
    request.good_bytes = offset;
    request.error = error;
  }
  if (--request.parts_left == 0) completed_.push_back(slot);
}

void NvmeChannel::check_patience() {
  if (parts_.in_use() == 0) return;  // what only waits for credit waits for others, who have patience of their own
  if (Clock::now() - heard_ < std::chrono::milliseconds(engine_->drive().config().timeout_ms)) return;
  engine_->drive().recover(epoch_);
  heard_ = Clock::now();
  epoch_ = queues_.epoch();
}

uint32_t NvmeChannel::hand_out(ReadCompletion* completions, uint32_t capacity) {
  uint32_t got = 0;
  for (; got < capacity && !completed_.empty(); got++) {
    const Request& request = requests_[completed_.front()];
    int64_t result = request.good_bytes != 0 ? request.good_bytes : -int64_t{request.error};
    completions[got] = {request.asked.tag, result};
    requests_.give_back(completed_.front());
    completed_.pop_front();
  }
  return got;
}

}  // namespace

NvmeEngine::NvmeEngine(std::shared_ptr<NvmeDrive> drive, const DriveFile* files, uint32_t n_files)
    : drive_(std::move(drive)), files_(files, files + n_files) {
  for (DriveFile& file : files_) {
    infos_.push_back({file.path, file.bytes, file.block_bytes, 1, true});
    file.path = nullptr;
  }
}

std::unique_ptr<Channel> NvmeEngine::open_channel(uint32_t depth, std::string*) {
  auto self = std::static_pointer_cast<NvmeEngine>(shared_from_this());
  return std::make_unique<NvmeChannel>(std::move(self), std::clamp(depth, 1u, kMaxChannelDepth));
}

int64_t NvmeEngine::readable(const ReadRequest& asked) const {
  if (asked.file >= files_.size()) return -EBADF;
  const DriveFile& file = files_[asked.file];
  if (asked.offset % file.block_bytes != 0 || asked.length % file.block_bytes != 0) return -EINVAL;
  if (asked.offset >= file.bytes) return 0;
  return static_cast<int64_t>(std::min<uint64_t>(asked.length, file.bytes - asked.offset));
}

Piece NvmeEngine::piece(const ReadRequest& asked, uint32_t offset, uint32_t bytes) const {
  const DriveFile& file = files_[asked.file];
  return {static_cast<uint8_t*>(asked.destination) + offset,
          file.first_block + (asked.offset + offset) / file.block_bytes,
          bytes,
          (bytes + file.block_bytes - 1) / file.block_bytes,
          file.block_bytes,
          file.nsid,
          Opcode::read};
}

void NvmeEngine::note_failure(const ReadRequest& asked, uint32_t offset, uint16_t status, int error) {
  uint64_t first = asked.offset + offset;
  uint64_t length = std::min<uint64_t>(drive_->config().slot_bytes, asked.length - offset);
  std::string reason = status_name(status);
  if (error == ETIMEDOUT) reason = "no answer in time, so the controller was reset: " + reason;
  if (error == ENODEV) reason = "the drive is gone: " + reason;
  std::lock_guard lock(mutex_);
  failures_[n_failures_++ % failures_.size()] = {asked.file, first, first + length - 1, reason};
}

std::string NvmeEngine::explain(uint32_t file, uint64_t offset) {
  std::lock_guard lock(mutex_);
  uint64_t kept = std::min<uint64_t>(n_failures_, failures_.size());
  for (uint64_t i = 1; i <= kept; i++) {
    const Failure& failure = failures_[(n_failures_ - i) % failures_.size()];
    if (failure.file == file && failure.first <= offset && offset <= failure.last) return failure.reason;
  }
  return "";
}

std::string NvmeEngine::describe() const {
  std::vector<std::string> notes;
  if (int refused = refused_buffer_errno_.load(std::memory_order_relaxed))
    notes.push_back(std::string("mapping a read buffer for the drive was refused (") + std::strerror(refused) +
                    "; see ulimit -l): those reads are copied");
  const DriveConfig& config = drive_->config();
  return JsonObject()
      .text("engine", "nvme")
      .text("implementation", "native")
      .flag("direct", true)
      .json("features", JsonObject()
                            .number("queue_pairs", config.n_pairs)
                            .number("depth", drive_->queues().pairs()[0].depth)
                            .number("max_transfer_bytes", config.slot_bytes)
                            .flag("sgl", config.use_sgl != 0)
                            .str())
      .texts("notes", notes)
      .str();
}

}  // namespace bam
