// Page-aligned memory that reads land in, split into equal slots.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "fork_guard.h"

namespace bam {

class Staging {
 public:
  explicit Staging(size_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    // A child that shares these pages would make the parent's writes go to copies while the disk fills the originals.
    madvise(memory, bytes, MADV_DONTFORK);
    base_ = static_cast<uint8_t*>(memory);
  }
  ~Staging() {
    if (base_ != nullptr && !fork_.forked()) munmap(base_, bytes_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  uint8_t* base() const { return base_; }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* base_ = nullptr;
  size_t bytes_;
  ForkGuard fork_;
};

}  // namespace bam
