#include "file_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace bam {
namespace {

constexpr const char* kWanted = "a regular file or block device that can be read";

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  return "something else";
}

int kind_errno(mode_t mode) { return S_ISDIR(mode) ? EISDIR : S_ISFIFO(mode) ? ESPIPE : EINVAL; }

int64_t modified_ns(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

// Size of a regular file or block device (whose st_size is 0).
int64_t size_of(int descriptor, const struct stat& status) {
  return S_ISBLK(status.st_mode) ? lseek(descriptor, 0, SEEK_END) : status.st_size;
}

// Alignment that O_DIRECT reads need, as the kernel says (Linux 6.1) or all zero.
void ask_alignment(int descriptor, uint32_t* offset_alignment, uint32_t* memory_alignment) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 && (status.stx_mask & STATX_DIOALIGN)) {
    *offset_alignment = status.stx_dio_offset_align;
    *memory_alignment = status.stx_dio_mem_align;
  }
#else
  (void)descriptor, (void)offset_alignment, (void)memory_alignment;
#endif
}

// Whether a direct read of `unit` bytes at offset `unit` (0 when the file is shorter) works from memory aligned to
// `unit` and no better.
bool can_read(int descriptor, uint64_t bytes, uint32_t unit) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, 3 * size_t{unit} + 4096) != 0) return false;
  char* destination = static_cast<char*>(memory) + unit;
  off_t offset = bytes >= 2 * uint64_t{unit} ? unit : 0;
  ssize_t got = -1;
  for (int attempt = 0; attempt < 8; attempt++) {
    got = pread(descriptor, destination, unit, offset);
    if (got >= 0 || (errno != EINTR && errno != EAGAIN)) break;
  }
  int seen = errno;
  std::free(memory);
  return got >= 0 || (seen != EINVAL && seen != EOPNOTSUPP);  // a failing disk is not a question of alignment
}

bool power_of_two(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

// Sets O_DIRECT and finds the alignment; a reason when the file must be read through the page cache.
std::string make_direct(int descriptor, FileInfo* info) {
  int flags = fcntl(descriptor, F_GETFL);
  if (fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0)
    return std::string("the file system does not take O_DIRECT (") + std::strerror(errno) + ")";
  uint32_t offset_alignment = 0, memory_alignment = 0;
  ask_alignment(descriptor, &offset_alignment, &memory_alignment);
  if (power_of_two(offset_alignment) && power_of_two(memory_alignment) && can_read(descriptor, info->bytes, offset_alignment)) {
    info->offset_alignment = offset_alignment;
    info->memory_alignment = memory_alignment;
    info->direct = true;
    return "";
  }
  // Unknown: ask by reading. A file too short to tell gets the larger unit, which every file system takes.
  uint32_t first = info->bytes >= 1024 ? 512 : 4096;
  for (uint32_t unit = first; unit <= 4096; unit *= 8) {
    if (!can_read(descriptor, info->bytes, unit)) continue;
    info->offset_alignment = info->memory_alignment = unit;
    info->direct = true;
    return "";
  }
  fcntl(descriptor, F_SETFL, flags);
  return "direct reads of 512 and of 4096 bytes fail";
}

int64_t unsigned_or_zero(int64_t bytes) { return bytes < 0 ? 0 : bytes; }

}  // namespace

std::shared_ptr<FileTable> FileTable::open(const std::vector<std::string>& paths, bool want_direct, Failure* failure) {
  if (paths.empty()) {
    *failure = Failure::setting("paths", "[]", "at least one file");
    return nullptr;
  }
  std::shared_ptr<FileTable> table(new FileTable);
  for (const std::string& path : paths)
    if (!table->add(path, want_direct, failure)) return nullptr;
  return table;
}

bool FileTable::add(const std::string& path, bool want_direct, Failure* failure) {
  struct stat status {};
  // O_NONBLOCK: opening a FIFO must not wait for a writer
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) {
    int error = errno;
    bool odd = ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode);
    *failure = Failure::source(path, kWanted, odd ? kind_name(status.st_mode) : std::strerror(error), error);
    return false;
  }
  files_.emplace_back().descriptor = descriptor;  // from here the destructor closes it
  infos_.emplace_back().path = path;
  if (fstat(descriptor, &status) != 0) {
    *failure = Failure::source(path, kWanted, std::strerror(errno), errno);
    return false;
  }
  if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
    *failure = Failure::source(path, kWanted, kind_name(status.st_mode), kind_errno(status.st_mode));
    return false;
  }
  // Blocking again: io_uring answers EAGAIN where a non-blocking block device would have to wait.
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  files_.back().modified_ns = modified_ns(status);
  files_.back().device = status.st_dev;
  files_.back().inode = status.st_ino;
  infos_.back().bytes = static_cast<uint64_t>(unsigned_or_zero(size_of(descriptor, status)));
  if (want_direct) files_.back().note = make_direct(descriptor, &infos_.back());
  return true;
}

FileTable::~FileTable() {
  for (const OpenFile& file : files_)
    if (file.descriptor >= 0) ::close(file.descriptor);
}

bool FileTable::all_direct() const {
  for (const FileInfo& info : infos_)
    if (!info.direct) return false;
  return true;
}

std::vector<std::string> FileTable::notes() const {
  size_t noted = 0;
  std::string first;
  for (size_t i = 0; i < files_.size(); i++) {
    if (files_[i].note.empty()) continue;
    if (noted++ == 0) first = infos_[i].path + ": " + files_[i].note;
  }
  if (noted == 0) return {};
  return {std::to_string(noted) + " of " + std::to_string(files_.size()) +
          " files are read through the page cache, not with O_DIRECT; " + first};
}

int FileTable::check(uint32_t file) const {
  struct stat status {};
  if (fstat(files_[file].descriptor, &status) != 0) return errno;
  if (modified_ns(status) == files_[file].modified_ns) return 0;
  return S_ISREG(status.st_mode) && static_cast<uint64_t>(status.st_size) < infos_[file].bytes ? 0 : ESTALE;
}

uint64_t FileTable::bytes_now(uint32_t file) const {
  struct stat status {};
  int descriptor = files_[file].descriptor;
  if (fstat(descriptor, &status) != 0) return 0;
  return static_cast<uint64_t>(unsigned_or_zero(size_of(descriptor, status)));
}

}  // namespace bam
