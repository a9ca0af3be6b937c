// Engine that reads an NVMe drive through its queue pairs, without the kernel.
//
// A file of this engine is a run of logical blocks of a namespace; its last block may be used in part.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bam/engine.h"
#include "bam/nvme_drive.h"

namespace bam {

struct DriveFile {
  const char* path;  // its name; used while the engine is made
  uint64_t first_block;
  uint64_t bytes;
  uint32_t nsid;
  uint32_t block_bytes;
};

class NvmeEngine final : public Engine {
 public:
  NvmeEngine(std::shared_ptr<NvmeDrive> drive, const DriveFile* files, uint32_t n_files);

  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) override;
  const std::vector<FileInfo>& files() const override { return infos_; }
  std::string explain(uint32_t file, uint64_t offset) override;
  std::string describe() const override;

  NvmeDrive& drive() const { return *drive_; }
  const std::shared_ptr<NvmeDrive>& shared_drive() const { return drive_; }
  // Bytes the file has of it, or -errno.
  int64_t readable(const ReadRequest& asked) const;
  Piece piece(const ReadRequest& asked, uint32_t offset, uint32_t bytes) const;
  // status: `type << 8 | code`.
  void note_failure(const ReadRequest& asked, uint32_t offset, uint16_t status, int error);
  void note_refused_buffer(int error) { refused_buffer_errno_.store(error, std::memory_order_relaxed); }

 private:
  struct Failure {
    uint32_t file = 0;
    uint64_t first = 0, last = 0;  // bytes of the file
    std::string reason;
  };
  std::shared_ptr<NvmeDrive> drive_;
  std::vector<DriveFile> files_;
  std::vector<FileInfo> infos_;
  std::atomic<int> refused_buffer_errno_{0};
  std::mutex mutex_;  // guards what follows
  std::array<Failure, 64> failures_;
  uint64_t n_failures_ = 0;
};

}  // namespace bam
