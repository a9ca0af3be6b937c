// Open files of an engine: read-only regular files and block devices, with O_DIRECT where the file system takes it.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bam/engine.h"
#include "failure.h"
#include "fingerprint.h"

namespace bam {

// What stat(2) says about the content of a file.
struct FileState {
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  bool regular = true;  // a block device has no state that tells anything
  bool operator==(const FileState&) const = default;
};

struct OpenFile {
  int descriptor = -1;
  FileState opened;  // when it was opened
  std::string note;  // why it is not read with O_DIRECT, if it is not though that was wanted
  Fingerprint fingerprint;
  std::atomic<bool> rewritten{false};  // seen once, and it stays so: some of its bytes are other ones
  std::mutex mutex;                    // guards `cut`
  FileState cut;                       // a state in which the file is shorter and its bytes are the old ones
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

  // See Engine::look(). A file renamed over the path does not matter: ours still holds the old bytes.
  FileLook look(uint32_t file);
  uint64_t bytes_now(uint32_t file) const;

 private:
  FileTable() = default;
  bool add(const std::string& path, bool want_direct, uint32_t samples, Failure* failure);
  FileLook look_at_cut(OpenFile& file);

  std::deque<OpenFile> files_;
  std::vector<FileInfo> infos_;
};

}  // namespace bam
