#include "fingerprint.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace bam {
namespace {

constexpr uint64_t kSampleBytes = 4096;
constexpr int kAttempts = 8;

uint64_t align_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Memory that any read of a file may go to.
class Buffer {
 public:
  Buffer(uint64_t bytes, uint64_t unit) {
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max<uint64_t>(unit, kSampleBytes), bytes) != 0) throw std::bad_alloc();
    memory_.reset(static_cast<uint8_t*>(memory));
  }
  uint8_t* data() const { return memory_.get(); }

 private:
  std::unique_ptr<uint8_t, decltype(&std::free)> memory_{nullptr, &std::free};
};

// Reads up to `length` bytes at `offset`, both multiples of `unit`, until the file ends. Bytes read, or -errno.
int64_t read_block(int descriptor, uint8_t* memory, uint64_t length, uint64_t offset, uint64_t unit) {
  uint64_t done = 0;
  for (int attempt = 0; done < length && attempt < kAttempts;) {
    ssize_t got = pread(descriptor, memory + done, length - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno != EINTR && errno != EAGAIN) return -errno;
    if (got == 0) break;
    uint64_t reached = got < 0 ? done : done + static_cast<uint64_t>(got);
    if (reached % unit != 0) return static_cast<int64_t>(reached);  // an unaligned end is that of the file
    attempt = reached > done ? 0 : attempt + 1;
    done = reached;
  }
  return static_cast<int64_t>(done);
}

}  // namespace

void Fingerprint::take(int descriptor, uint64_t bytes, uint32_t unit, uint32_t samples) {
  unit_ = unit;
  uint64_t block = std::max<uint64_t>(kSampleBytes, unit);
  bool whole = bytes <= samples * block;
  uint64_t length = whole ? align_up(bytes, unit) : block;
  if (bytes == 0) return;
  Buffer buffer(length, unit);
  uint32_t count = whole ? 1 : samples;
  bytes_.reserve(count * length);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t offset = bytes / samples * i / block * block;
    int64_t got = read_block(descriptor, buffer.data(), length, offset, unit);
    if (got <= 0) continue;
    samples_.push_back({offset, static_cast<uint32_t>(got), static_cast<uint32_t>(bytes_.size())});
    bytes_.insert(bytes_.end(), buffer.data(), buffer.data() + got);
  }
}

int Fingerprint::compare(int descriptor, uint64_t end) const {
  bool compared = end == 0;
  for (const Sample& sample : samples_) {
    if (sample.offset >= end) break;
    uint64_t length = std::min<uint64_t>(sample.length, end - sample.offset);
    Buffer buffer(align_up(length, unit_), unit_);
    int64_t got = read_block(descriptor, buffer.data(), align_up(length, unit_), sample.offset, unit_);
    if (got < 0) return static_cast<int>(-got);
    if (static_cast<uint64_t>(got) < length) return EAGAIN;
    if (std::memcmp(buffer.data(), &bytes_[sample.begin], length) != 0) return ESTALE;
    compared = true;
  }
  return compared ? 0 : ESTALE;
}

}  // namespace bam
