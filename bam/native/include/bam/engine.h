// What moves bytes from files into memory (host only).
//
// An Engine owns open files. A Channel is one thread's connection to it: a deep queue of reads, submitted and
// harvested by that thread alone. Engines may return fewer bytes than asked, or -EINTR / -EAGAIN: whoever uses a
// channel asks again (span_reader.h does), so wrappers can inject every fault a file system can show.
//
// Engines are owned by shared_ptr; a channel keeps its engine (and a wrapper the engines below it) alive, so handles
// may be closed in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bam {

constexpr uint32_t kMaxChannelDepth = 32768;  // deeper channels come back this deep (io_uring's limit)

struct FileInfo {
  std::string path;
  uint64_t bytes = 0;
  uint32_t offset_alignment = 1;  // file offset and length of a read are multiples of this
  uint32_t memory_alignment = 1;  // and its destination of this
  bool direct = false;            // O_DIRECT
};

struct ReadRequest {
  void* destination;
  uint64_t offset;  // in the file, aligned
  uint32_t length;  // aligned; may reach past the end of the file
  uint32_t file;
  uint64_t tag;     // comes back with the completion
};

struct ReadCompletion {
  uint64_t tag;
  int64_t result;  // bytes read (short at the end of the file, or at any time) or -errno
};

constexpr uint64_t kAllBytes = ~uint64_t{0};

// What became of a file since it was opened.
struct FileLook {
  int error;       // 0; ESTALE: it was rewritten; otherwise the errno of looking
  uint64_t bytes;  // before here it holds what it held; kAllBytes, or where it was cut
};

class Channel {
 public:
  // Only when no read is in flight: their destinations are written to until they end (leftovers.h).
  virtual ~Channel() = default;
  // Takes the first k requests, as many as the queue has room for, and returns k. They start at the next poll() at
  // the latest, so one system call can submit and wait.
  virtual uint32_t submit(const ReadRequest* requests, uint32_t count) = 0;
  // Returns up to `capacity` completions in any order. Waits for the first one when `wait_us` > 0 and reads are in
  // flight, at most that long (rounded up to what the engine can do); 0 returns at once. May return none early.
  virtual uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) = 0;
  virtual uint32_t depth() const = 0;      // most reads in flight
  virtual uint32_t in_flight() const = 0;
  // Reads into [base, base + bytes) may then be faster. Returns false where the engine has no such thing.
  virtual bool register_buffer(void* base, size_t bytes) { (void)base, (void)bytes; return false; }
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  virtual ~Engine() = default;
  // Null and a reason in `error` when the channel cannot be made.
  virtual std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) = 0;
  virtual const std::vector<FileInfo>& files() const = 0;
  // Whether the file still holds what it held when it was opened: asked after bytes of it arrived, before they are
  // handed out.
  virtual FileLook look(uint32_t file) { (void)file; return {0, kAllBytes}; }
  // Size of the file now; tells a short read at the end of a file that was cut from one to be continued.
  virtual uint64_t bytes_now(uint32_t file) { return files()[file].bytes; }
  // What the device said of the last failed read that touched byte `offset`; empty where errno says it all.
  virtual std::string explain(uint32_t file, uint64_t offset) { (void)file, (void)offset; return ""; }
  // One-line JSON: {"engine": "uring", "direct": true, "features": {...}, ...}; says which path really runs.
  virtual std::string describe() const = 0;
};

}  // namespace bam
