#include "file_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace bam {
namespace {

constexpr const char* kWanted = "a regular file or block device that can be read";
constexpr int kMostLooks = 8;            // at a file that changes while it is looked at
constexpr int64_t kMostWaitNs = 20'000'000;  // for the clock of modification times, which ticks every 1 to 10 ms

const char* kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  return "something else";
}

int kind_errno(mode_t mode) { return S_ISDIR(mode) ? EISDIR : S_ISFIFO(mode) ? ESPIPE : EINVAL; }

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

// Size of a regular file or block device (whose st_size is 0).
uint64_t size_of(int descriptor, const struct stat& status) {
  int64_t bytes = S_ISBLK(status.st_mode) ? lseek(descriptor, 0, SEEK_END) : status.st_size;
  return bytes < 0 ? 0 : static_cast<uint64_t>(bytes);
}

FileState state_of(int descriptor, const struct stat& status) {
  return {size_of(descriptor, status), nanoseconds(status.st_mtim), S_ISREG(status.st_mode)};
}

// Nanoseconds until a change of a file gets another modification time than `modified_ns`; 0 or less: it does now.
int64_t until_told_apart_ns(int64_t modified_ns) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);  // what file systems stamp with
  return modified_ns + 1 - nanoseconds(now);
}

// State of a file that was opened, such that no later change leaves it as it is: waits, if it was changed a moment
// ago, until the clock has moved on. A time far in the future is that of another machine's clock, and not waited for.
int settled_state(int descriptor, FileState* state) {
  for (int look = 0; look < kMostLooks; look++) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) return errno;
    *state = state_of(descriptor, status);
    int64_t left_ns = until_told_apart_ns(state->modified_ns);
    if (left_ns <= 0 || left_ns > kMostWaitNs) break;
    usleep(static_cast<useconds_t>(left_ns / 1000 + 1));
  }
  return 0;
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

}  // namespace

std::shared_ptr<FileTable> FileTable::open(const std::vector<std::string>& paths, bool want_direct, Failure* failure) {
  if (paths.empty()) {
    *failure = Failure::setting("paths", "[]", "at least one file");
    return nullptr;
  }
  std::shared_ptr<FileTable> table(new FileTable);
  uint32_t samples = samples_per_file(paths.size());
  for (const std::string& path : paths)
    if (!table->add(path, want_direct, samples, failure)) return nullptr;
  return table;
}

bool FileTable::add(const std::string& path, bool want_direct, uint32_t samples, Failure* failure) {
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
  OpenFile& file = files_.back();
  FileInfo& info = infos_.back();
  if (int error = settled_state(descriptor, &file.opened)) {
    *failure = Failure::source(path, kWanted, std::strerror(error), error);
    return false;
  }
  info.bytes = file.opened.bytes;
  if (want_direct) file.note = make_direct(descriptor, &info);
  if (file.opened.regular)
    file.fingerprint.take(descriptor, info.bytes, std::max(info.offset_alignment, info.memory_alignment), samples);
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

FileLook FileTable::look(uint32_t number) {
  OpenFile& file = files_[number];
  if (file.rewritten.load(std::memory_order_relaxed)) return {ESTALE, 0};
  struct stat status {};
  if (fstat(file.descriptor, &status) != 0) return {errno, 0};
  FileState now = state_of(file.descriptor, status);
  if (file.opened.regular && now.bytes < file.opened.bytes) return look_at_cut(file);
  return {now.modified_ns == file.opened.modified_ns ? 0 : ESTALE, kAllBytes};
}

// The file is shorter than it was: cut, or written anew. Tells which, once for each state it is found in.
FileLook FileTable::look_at_cut(OpenFile& file) {
  std::lock_guard lock(file.mutex);
  for (int looks = 0; looks < kMostLooks; looks++) {
    struct stat status {};
    if (fstat(file.descriptor, &status) != 0) return {errno, 0};
    FileState now = state_of(file.descriptor, status);
    if (now.bytes >= file.opened.bytes) break;  // and is long again: written to
    if (now == file.cut) return {0, now.bytes};
    bool told_apart = until_told_apart_ns(now.modified_ns) <= 0;
    int error = file.fingerprint.compare(file.descriptor, now.bytes);
    if (error == EAGAIN) continue;
    if (error == ESTALE) file.rewritten.store(true, std::memory_order_relaxed);
    if (error != 0) return {error, 0};
    // What is remembered must not be true of a later change as well.
    if (fstat(file.descriptor, &status) != 0 || state_of(file.descriptor, status) != now) continue;
    if (told_apart) file.cut = now;
    return {0, now.bytes};
  }
  return {ESTALE, 0};
}

uint64_t FileTable::bytes_now(uint32_t file) const {
  struct stat status {};
  int descriptor = files_[file].descriptor;
  return fstat(descriptor, &status) != 0 ? 0 : size_of(descriptor, status);
}

}  // namespace bam
