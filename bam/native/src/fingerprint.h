// What a few blocks of a file held when it was opened.
//
// A file that was cut and a file that was written anew and is shorter now look the same to stat(2): another
// modification time and a smaller size. Bytes before the cut may be handed out only in the first case, so the blocks
// are compared. Python twin, with the same rule: bam/storage/fingerprint.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bam {

// Blocks sampled of each of `n_files` files that are opened together. Few enough that opening many files stays cheap.
constexpr uint32_t samples_per_file(size_t n_files) {
  constexpr size_t kOfAllFiles = 1024, kMost = 16, kFewest = 2;
  size_t share = kOfAllFiles / (n_files == 0 ? 1 : n_files);
  return static_cast<uint32_t>(share > kMost ? kMost : share < kFewest ? kFewest : share);
}

class Fingerprint {
 public:
  // Reads `samples` blocks, evenly spread from the first one on, of a file of `bytes` bytes whose reads are aligned
  // to `unit`; of a file no longer than that, all of it. A block that cannot be read is left out: only who needs it
  // is to learn of that.
  void take(int descriptor, uint64_t bytes, uint32_t unit, uint32_t samples);

  // 0 when every sampled byte before `end` is what it was. ESTALE when one is not, or when there is none to compare
  // though the file has bytes. EAGAIN when the file ends earlier than `end`. Otherwise the errno of reading.
  int compare(int descriptor, uint64_t end) const;

 private:
  struct Sample {
    uint64_t offset;  // in the file
    uint32_t length;
    uint32_t begin;   // in bytes_
  };
  uint32_t unit_ = 1;
  std::vector<Sample> samples_;
  std::vector<uint8_t> bytes_;
};

}  // namespace bam
