// Open files of an engine: read-only regular files and block devices, with O_DIRECT where the file system takes it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bam/engine.h"
#include "failure.h"

namespace bam {

struct OpenFile {
  int descriptor = -1;
  int64_t modified_ns = 0;  // modification time when it was opened
  uint64_t device = 0;
  uint64_t inode = 0;
  std::string note;  // why it is not read with O_DIRECT, if it is not though that was wanted
};

class FileTable {
 public:
  // Null and the reason in `failure`. Never waits for the other end of a FIFO.
  static std::shared_ptr<FileTable> open(const std::vector<std::string>& paths, bool want_direct, Failure* failure);
  ~FileTable();
  FileTable(const FileTable&) = delete;
  FileTable& operator=(const FileTable&) = delete;

  const std::vector<FileInfo>& infos() const { return infos_; }
  int descriptor(uint32_t file) const { return files_[file].descriptor; }
  bool all_direct() const;
  std::vector<std::string> notes() const;

  // 0, ESTALE when the file was rewritten after it was opened (its modification time changed and it is not smaller),
  // or the errno of looking. A file renamed over the path does not matter: ours still holds the old bytes.
  int check(uint32_t file) const;
  uint64_t bytes_now(uint32_t file) const;

 private:
  FileTable() = default;
  bool add(const std::string& path, bool want_direct, Failure* failure);

  std::vector<OpenFile> files_;
  std::vector<FileInfo> infos_;
};

}  // namespace bam
