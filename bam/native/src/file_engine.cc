// Engine that reads with pread() from a few threads a channel: works wherever files do.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "bam/engine.h"
#include "engine_registry.h"
#include "file_table.h"
#include "guard.h"

namespace bam {
namespace {

class FileEngine;

class FileChannel final : public Channel {
 public:
  FileChannel(std::shared_ptr<Engine> engine, std::shared_ptr<FileTable> files, uint32_t depth)
      : engine_(std::move(engine)), files_(std::move(files)), depth_(depth), queue_(depth) {
    completed_.reserve(depth);
  }
  ~FileChannel() override;

  void start_threads(uint32_t threads);  // throws std::system_error

  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return in_flight_; }

 private:
  void work();
  int64_t read(const ReadRequest& request) const;

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<FileTable> files_;
  uint32_t depth_;
  uint32_t in_flight_ = 0;  // touched by the channel's thread only
  std::mutex mutex_;        // guards all below
  std::condition_variable work_, done_;
  // Of fixed size: a reading thread that found no memory could not say so.
  std::vector<ReadRequest> queue_;        // a ring of depth_
  uint32_t first_queued_ = 0, queued_ = 0;
  std::vector<ReadCompletion> completed_;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

class FileEngine final : public Engine {
 public:
  FileEngine(std::shared_ptr<FileTable> files, uint32_t threads) : files_(std::move(files)), threads_(threads) {}

  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) override {
    depth = std::clamp(depth, 1u, kMaxChannelDepth);
    auto channel = std::make_unique<FileChannel>(shared_from_this(), files_, depth);
    try {
      channel->start_threads(threads_ < depth ? threads_ : depth);
    } catch (const std::system_error& problem) {
      if (error != nullptr) *error = std::string("starting the reading threads failed: ") + problem.what();
      return nullptr;
    }
    return channel;
  }
  const std::vector<FileInfo>& files() const override { return files_->infos(); }
  FileLook look(uint32_t file) override { return files_->look(file); }
  uint64_t bytes_now(uint32_t file) override { return files_->bytes_now(file); }
  std::string describe() const override {
    return JsonObject()
        .text("engine", "file")
        .text("implementation", "native")
        .flag("direct", files_->all_direct())
        .json("features", JsonObject().number("threads_per_channel", threads_).str())
        .texts("notes", files_->notes())
        .str();
  }

 private:
  std::shared_ptr<FileTable> files_;
  uint32_t threads_;
};

FileChannel::~FileChannel() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    queued_ = 0;  // those not begun need not be read; those begun are waited for
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void FileChannel::start_threads(uint32_t threads) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new threads take no signals meant for the program
  try {
    for (uint32_t i = 0; i < threads; i++) threads_.emplace_back([this] { work(); });
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Reads until the channel closes and nothing is left to read.
void FileChannel::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return closing_ || queued_ > 0; });
    if (queued_ == 0) return;
    ReadRequest request = queue_[first_queued_];
    first_queued_ = (first_queued_ + 1) % depth_;
    queued_--;
    lock.unlock();
    int64_t result = read(request);
    lock.lock();
    completed_.push_back({request.tag, result});
    done_.notify_one();
  }
}

int64_t FileChannel::read(const ReadRequest& request) const {
  if (request.file >= files_->infos().size()) return -EBADF;
  ssize_t got = pread(files_->descriptor(request.file), request.destination, request.length,
                      static_cast<off_t>(request.offset));
  return got < 0 ? -errno : got;
}

uint32_t FileChannel::submit(const ReadRequest* requests, uint32_t count) {
  uint32_t room = depth_ - in_flight_;
  uint32_t taken = count < room ? count : room;
  if (taken == 0) return 0;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < taken; i++) queue_[(first_queued_ + queued_++) % depth_] = requests[i];
  }
  in_flight_ += taken;
  if (taken == 1) work_.notify_one();
  else work_.notify_all();
  return taken;
}

uint32_t FileChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
  std::unique_lock lock(mutex_);
  if (wait_us > 0 && in_flight_ > 0 && completed_.empty())
    done_.wait_for(lock, std::chrono::microseconds(wait_us), [this] { return !completed_.empty(); });
  uint32_t given = 0;
  for (; given < capacity && !completed_.empty(); given++) {
    completions[given] = completed_.back();
    completed_.pop_back();
  }
  in_flight_ -= given;
  return given;
}

}  // namespace
}  // namespace bam

extern "C" {

// `threads`: reading threads of each channel.
void* bam_file_engine_create(const char* const* paths, uint32_t count, int32_t want_direct, uint32_t threads,
                             char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    bam::Failure failure;
    std::shared_ptr<bam::Engine> engine;
    if (threads == 0 || threads > 1024) {
      failure = bam::Failure::setting("threads", std::to_string(threads), "1 to 1024");
    } else {
      auto files = bam::FileTable::open({paths, paths + count}, want_direct != 0, &failure);
      if (files != nullptr) engine = std::make_shared<bam::FileEngine>(std::move(files), threads);
    }
    return bam::handle_or_failure(std::move(engine), failure, error, capacity);
  });
}

}  // extern "C"
