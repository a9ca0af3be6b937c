// Engine that reads with io_uring: O_DIRECT, registered files and buffers, one system call per turn of the queue.
//
// Each channel has its own ring. Rings are not bound to the thread that made them (no IORING_SETUP_SINGLE_ISSUER),
// so a channel can be handed on and closed by another thread.
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "bam/engine.h"
#include "engine_registry.h"
#include "file_table.h"
#include "fork_guard.h"
#include "guard.h"
#include "locked_memory.h"
#include "uring_ring.h"

namespace bam {
namespace {

constexpr size_t kMaxBufferBytes = size_t{1} << 30;  // the kernel's limit for one registered buffer
constexpr uint32_t kNoBuffer = ~0u;

class UringEngine final : public Engine {
 public:
  UringEngine(std::shared_ptr<FileTable> files, UringFeatures features)
      : files_(std::move(files)), features_(features) {}

  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) override;
  const std::vector<FileInfo>& files() const override { return files_->infos(); }
  FileLook look(uint32_t file) override { return files_->look(file); }
  uint64_t bytes_now(uint32_t file) override { return files_->bytes_now(file); }
  std::string describe() const override;

  const FileTable& table() const { return *files_; }
  void note_refused_buffer(int error) { refused_buffer_errno_.store(error, std::memory_order_relaxed); }

 private:
  std::shared_ptr<FileTable> files_;
  UringFeatures features_;
  std::atomic<int> refused_buffer_errno_{0};  // of the latest registration that a channel was refused
};

class UringChannel final : public Channel {
 public:
  UringChannel(std::shared_ptr<UringEngine> engine, UringFeatures features, uint32_t depth)
      : engine_(std::move(engine)), features_(features), depth_(depth) {}
  ~UringChannel() override;

  int open();  // 0 or an errno

  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return in_flight_; }
  bool register_buffer(void* base, size_t bytes) override;

 private:
  void fill(io_uring_sqe* entry, const ReadRequest& request) const;
  uint32_t buffer_of(const void* destination, uint32_t length) const;
  uint32_t harvest(ReadCompletion* completions, uint32_t capacity);
  void fail_unsubmitted(int error);

  std::shared_ptr<UringEngine> engine_;
  UringFeatures features_;
  uint32_t depth_;
  uint32_t in_flight_ = 0;
  Ring ring_;
  ForkGuard fork_;
  std::vector<iovec> buffers_;
  size_t locked_bytes_ = 0;
  std::vector<ReadCompletion> failed_;  // never reached the kernel
};

int UringChannel::open() {
  int error = ring_.open(depth_, &features_);
  if (error != 0) return error;
  if (features_.fixed_files) {
    std::vector<int> descriptors;
    for (uint32_t i = 0; i < engine_->files().size(); i++) descriptors.push_back(engine_->table().descriptor(i));
    features_.fixed_files = ring_.register_resource(IORING_REGISTER_FILES, descriptors.data(),
                                                    static_cast<unsigned>(descriptors.size())) == 0;
  }
  return 0;
}

UringChannel::~UringChannel() {
  if (fork_.forked()) {
    ring_.abandon();
    return;
  }
  ReadCompletion dropped[64];
  while (in_flight_ > 0) poll(dropped, 64, 100'000);
  give_back_locked(locked_bytes_);
}

// Several calls register several ranges; only between reads, because the kernel takes them all at once.
bool UringChannel::register_buffer(void* base, size_t bytes) {
  if (!features_.fixed_buffers || in_flight_ > 0 || bytes == 0) return false;
  if (!take_locked(bytes)) {
    engine_->note_refused_buffer(ENOMEM);
    return false;
  }
  std::vector<iovec> wanted = buffers_;
  for (size_t done = 0; done < bytes; done += kMaxBufferBytes)
    wanted.push_back({static_cast<char*>(base) + done, bytes - done < kMaxBufferBytes ? bytes - done : kMaxBufferBytes});
  if (!buffers_.empty()) ring_.register_resource(IORING_UNREGISTER_BUFFERS, nullptr, 0);
  int error = ring_.register_resource(IORING_REGISTER_BUFFERS, wanted.data(), static_cast<unsigned>(wanted.size()));
  if (error == 0) {
    buffers_ = std::move(wanted);
    locked_bytes_ += bytes;
    return true;
  }
  give_back_locked(bytes);
  engine_->note_refused_buffer(error);
  bool kept = !buffers_.empty() && ring_.register_resource(IORING_REGISTER_BUFFERS, buffers_.data(),
                                                           static_cast<unsigned>(buffers_.size())) == 0;
  if (!kept) buffers_.clear();
  return false;
}

uint32_t UringChannel::buffer_of(const void* destination, uint32_t length) const {
  const char* first = static_cast<const char*>(destination);
  for (uint32_t i = 0; i < buffers_.size(); i++) {
    const char* base = static_cast<const char*>(buffers_[i].iov_base);
    if (first >= base && first + length <= base + buffers_[i].iov_len) return i;
  }
  return kNoBuffer;
}

void UringChannel::fill(io_uring_sqe* entry, const ReadRequest& request) const {
  uint32_t buffer = buffer_of(request.destination, request.length);
  entry->opcode = buffer == kNoBuffer ? IORING_OP_READ : IORING_OP_READ_FIXED;
  if (buffer != kNoBuffer) entry->buf_index = static_cast<uint16_t>(buffer);
  entry->fd = features_.fixed_files ? static_cast<int>(request.file) : engine_->table().descriptor(request.file);
  entry->flags = features_.fixed_files ? IOSQE_FIXED_FILE : 0;
  entry->addr = reinterpret_cast<uint64_t>(request.destination);
  entry->len = request.length;
  entry->off = request.offset;
  entry->user_data = request.tag;
}

uint32_t UringChannel::submit(const ReadRequest* requests, uint32_t count) {
  uint32_t room = depth_ - in_flight_;
  uint32_t taken = count < room ? count : room;
  for (uint32_t i = 0; i < taken; i++) {
    if (requests[i].file < engine_->files().size()) fill(ring_.next_entry(), requests[i]);
    else failed_.push_back({requests[i].tag, -EBADF});
  }
  if (taken > 0) ring_.publish();
  in_flight_ += taken;
  return taken;
}

// One system call at most: takes what is there, submits what is queued, waits only if there was nothing to take.
uint32_t UringChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
  if (capacity == 0) return 0;
  uint32_t got = harvest(completions, capacity);
  uint32_t wait = got == 0 && in_flight_ > 0 ? wait_us : 0;
  if (wait == 0 && ring_.unsubmitted() == 0 && !ring_.has_task_work()) return got;
  int error = ring_.enter(wait);
  if (error != 0) fail_unsubmitted(error);
  return got + harvest(completions + got, capacity - got);
}

uint32_t UringChannel::harvest(ReadCompletion* completions, uint32_t capacity) {
  uint32_t got = 0;
  for (; got < capacity && !failed_.empty(); got++) {
    completions[got] = failed_.back();
    failed_.pop_back();
  }
  for (; got < capacity; got++) {
    const io_uring_cqe* cqe = ring_.front();
    if (cqe == nullptr) break;
    completions[got] = {cqe->user_data, cqe->res};
    ring_.advance();
  }
  in_flight_ -= got;
  return got;
}

// The ring no longer takes anything: what it has not taken fails, instead of waiting for ever.
void UringChannel::fail_unsubmitted(int error) {
  while (io_uring_sqe* entry = ring_.take_back()) failed_.push_back({entry->user_data, -error});
}

std::unique_ptr<Channel> UringEngine::open_channel(uint32_t depth, std::string* error) {
  depth = std::clamp(depth, 1u, kMaxChannelDepth);
  auto self = std::static_pointer_cast<UringEngine>(shared_from_this());
  auto channel = std::make_unique<UringChannel>(std::move(self), features_, depth);
  int code = channel->open();
  if (code == 0) return channel;
  if (error != nullptr) *error = refusal_reason(code) + ". " + refusal_remedy(code);
  return nullptr;
}

std::string UringEngine::describe() const {
  std::vector<std::string> notes = files_->notes();
  int refused = refused_buffer_errno_.load(std::memory_order_relaxed);
  if (refused != 0)
    notes.push_back(std::string("registering a read buffer was refused (") + std::strerror(refused) +
                    "; see ulimit -l): those reads use plain buffers");
  return JsonObject()
      .text("engine", "uring")
      .text("implementation", "native")
      .flag("direct", files_->all_direct())
      .json("features", JsonObject()
                            .flag("registered_files", features_.fixed_files)
                            .flag("registered_buffers", features_.fixed_buffers)
                            .flag("timed_wait", features_.timed_wait)
                            .flag("single_mmap", features_.single_mmap)
                            .flag("no_drop", features_.no_drop)
                            .flag("coop_taskrun", features_.coop_taskrun)
                            .str())
      .texts("notes", notes)
      .str();
}

// Bits of bam_uring_engine_create()'s `without`: features not to use even where the kernel has them.
UringFeatures features_without(uint32_t without) {
  UringFeatures features;
  features.fixed_files = !(without & 1);
  features.fixed_buffers = !(without & 2);
  features.timed_wait = !(without & 4);
  features.single_mmap = !(without & 8);
  features.coop_taskrun = !(without & 16);
  return features;
}

}  // namespace
}  // namespace bam

extern "C" {

// `without`: 1 registered files, 2 registered buffers, 4 timed waits, 8 single mmap, 16 cooperative task running.
void* bam_uring_engine_create(const char* const* paths, uint32_t count, int32_t want_direct, uint32_t without,
                              char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    bam::Failure failure;
    std::shared_ptr<bam::Engine> engine;
    auto files = bam::FileTable::open({paths, paths + count}, want_direct != 0, &failure);
    if (files != nullptr) {
      std::vector<int> descriptors;
      for (uint32_t i = 0; i < count; i++) descriptors.push_back(files->descriptor(i));
      bam::UringFeatures features = bam::features_without(without);
      int code = bam::probe_uring(descriptors.data(), count, &features);
      if (code == 0) engine = std::make_shared<bam::UringEngine>(std::move(files), features);
      else failure = bam::Failure::unavailable("uring", bam::refusal_reason(code), bam::refusal_remedy(code), code);
    }
    return bam::handle_or_failure(std::move(engine), failure, error, capacity);
  });
}

}  // extern "C"
