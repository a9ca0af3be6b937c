// Engine over bytes in memory: for tests, for data that fits, and below the model of an SSD.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "bam/engine.h"
#include "engine_registry.h"
#include "failure.h"
#include "guard.h"

namespace bam {
namespace {

class MemoryEngine;

class MemoryChannel final : public Channel {
 public:
  MemoryChannel(std::shared_ptr<MemoryEngine> engine, uint32_t depth) : engine_(std::move(engine)), depth_(depth) {
    done_.reserve(depth);
  }
  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return depth_; }
  uint32_t in_flight() const override { return static_cast<uint32_t>(done_.size() - next_); }

 private:
  std::shared_ptr<MemoryEngine> engine_;
  uint32_t depth_;
  std::vector<ReadCompletion> done_;  // copied already; those before next_ have been handed out
  size_t next_ = 0;
};

class MemoryEngine final : public Engine {
 public:
  // `alignment` > 1 refuses what an O_DIRECT file would refuse.
  MemoryEngine(const void* const* buffers, const uint64_t* bytes, uint32_t count, bool copy, uint32_t alignment) {
    for (uint32_t i = 0; i < count; i++) {
      const uint8_t* bytes_of_file = static_cast<const uint8_t*>(buffers[i]);
      if (copy) {
        copies_.emplace_back(bytes_of_file, bytes_of_file + bytes[i]);
        bytes_of_file = copies_.back().data();
      }
      buffers_.push_back(bytes_of_file);
      files_.push_back({"memory:" + std::to_string(i), bytes[i], alignment, alignment, false});
    }
  }

  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string*) override {
    auto self = std::static_pointer_cast<MemoryEngine>(shared_from_this());
    return std::make_unique<MemoryChannel>(std::move(self), std::clamp(depth, 1u, kMaxChannelDepth));
  }
  const std::vector<FileInfo>& files() const override { return files_; }
  std::string describe() const override {
    return JsonObject()
        .text("engine", "memory")
        .text("implementation", "native")
        .flag("direct", false)
        .json("features", JsonObject().flag("copied", !copies_.empty()).str())
        .str();
  }

  int64_t read(const ReadRequest& request) const {
    if (request.file >= files_.size()) return -EBADF;
    const FileInfo& file = files_[request.file];
    uint64_t misfit = request.offset | request.length | reinterpret_cast<uintptr_t>(request.destination);
    if ((misfit & (file.offset_alignment - 1)) != 0) return -EINVAL;
    if (request.offset >= file.bytes) return 0;
    uint64_t left = file.bytes - request.offset;
    uint64_t got = request.length < left ? request.length : left;
    std::memcpy(request.destination, buffers_[request.file] + request.offset, got);
    return static_cast<int64_t>(got);
  }

 private:
  std::vector<const uint8_t*> buffers_;
  std::deque<std::vector<uint8_t>> copies_;
  std::vector<FileInfo> files_;
};

uint32_t MemoryChannel::submit(const ReadRequest* requests, uint32_t count) {
  if (next_ == done_.size()) {
    done_.clear();
    next_ = 0;
  }
  uint32_t room = depth_ - in_flight();
  uint32_t taken = count < room ? count : room;
  for (uint32_t i = 0; i < taken; i++) done_.push_back({requests[i].tag, engine_->read(requests[i])});
  return taken;
}

uint32_t MemoryChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t) {
  uint32_t ready = in_flight();
  uint32_t given = capacity < ready ? capacity : ready;
  if (given > 0) std::memcpy(completions, done_.data() + next_, given * sizeof(ReadCompletion));
  next_ += given;
  // Keeps the list short when it never drains completely.
  if (next_ >= depth_) {
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ = 0;
  }
  return given;
}

}  // namespace
}  // namespace bam

extern "C" {

// `buffers[i]` holds `bytes[i]` bytes of file i: owned by the caller and kept until the engine is gone, or copied.
// `alignment`: a power of two; reads that do not keep to it fail with EINVAL, as O_DIRECT does.
void* bam_memory_engine_create(const void* const* buffers, const uint64_t* bytes, uint32_t count, int32_t copy,
                               uint32_t alignment, char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    bam::Failure failure;
    std::shared_ptr<bam::Engine> engine;
    if (count == 0) {
      failure = bam::Failure::setting("buffers", "[]", "at least one buffer");
    } else if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      failure = bam::Failure::setting("alignment", std::to_string(alignment), "a power of two");
    } else {
      engine = std::make_shared<bam::MemoryEngine>(buffers, bytes, count, copy != 0, alignment);
    }
    return bam::handle_or_failure(std::move(engine), failure, error, capacity);
  });
}

}  // extern "C"
