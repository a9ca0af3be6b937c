#include "engine_registry.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "failure.h"
#include "guard.h"

namespace bam {
namespace {

constexpr uint32_t kSyncDepth = 128;
constexpr uint32_t kSyncWaitUs = 100'000;
constexpr size_t kIdleChannels = 8;

// An engine and the channels that synchronous reads use in turn.
struct Entry {
  std::shared_ptr<Engine> engine;
  std::mutex mutex;
  std::vector<std::unique_ptr<Channel>> idle;

  std::unique_ptr<Channel> take(std::string* error) {
    {
      std::lock_guard lock(mutex);
      if (!idle.empty()) {
        std::unique_ptr<Channel> channel = std::move(idle.back());
        idle.pop_back();
        return channel;
      }
    }
    return engine->open_channel(kSyncDepth, error);
  }

  void give_back(std::unique_ptr<Channel> channel) {
    std::lock_guard lock(mutex);
    if (idle.size() < kIdleChannels) idle.push_back(std::move(channel));
  }
};

struct Registry {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Entry>> entries;
};

Registry* registry = new Registry;  // never destroyed: threads may outlive static objects at exit

std::shared_ptr<Entry> find_entry(const void* handle) {
  std::lock_guard lock(registry->mutex);
  auto found = registry->entries.find(handle);
  return found == registry->entries.end() ? nullptr : found->second;
}

void read_batch(Channel& channel, const ReadRequest* requests, uint64_t count, int64_t* results) {
  std::vector<ReadCompletion> done(std::min<uint64_t>(count, channel.depth()));
  for (uint64_t sent = 0, finished = 0; finished < count;) {
    uint64_t batch = std::min<uint64_t>(count - sent, channel.depth());
    sent += channel.submit(requests + sent, static_cast<uint32_t>(batch));
    uint32_t got = channel.poll(done.data(), static_cast<uint32_t>(done.size()), kSyncWaitUs);
    for (uint32_t i = 0; i < got; i++) results[done[i].tag] = done[i].result;
    finished += got;
  }
}

}  // namespace

std::shared_ptr<Engine> find_engine(const void* handle) {
  std::shared_ptr<Entry> entry = find_entry(handle);
  return entry == nullptr ? nullptr : entry->engine;
}

Engine* adopt_engine(std::shared_ptr<Engine> engine) {
  Engine* handle = engine.get();
  auto entry = std::make_shared<Entry>();
  entry->engine = std::move(engine);
  std::lock_guard lock(registry->mutex);
  registry->entries[handle] = std::move(entry);
  return handle;
}

void forget_engines_after_fork() { registry = new Registry; }

size_t copy_text(std::string_view text, char* buffer, size_t capacity) {
  if (capacity > 0) {
    size_t copied = std::min(text.size(), capacity - 1);
    std::memcpy(buffer, text.data(), copied);
    buffer[copied] = '\0';
  }
  return text.size();
}

void* handle_or_failure(std::shared_ptr<Engine> engine, const Failure& failure, char* buffer, size_t capacity) {
  if (engine != nullptr) return adopt_engine(std::move(engine));
  copy_text(failure.json(), buffer, capacity);
  return nullptr;
}

}  // namespace bam

extern "C" {

// Closes the handle. Reads in progress finish first or keep the engine until they have. Unknown handles are ignored.
void bam_engine_destroy(void* handle) {
  std::shared_ptr<bam::Entry> entry;
  {
    std::lock_guard lock(bam::registry->mutex);
    auto found = bam::registry->entries.find(handle);
    if (found == bam::registry->entries.end()) return;
    entry = std::move(found->second);
    bam::registry->entries.erase(found);
  }
  std::vector<std::unique_ptr<bam::Channel>> idle;
  std::lock_guard lock(entry->mutex);
  idle.swap(entry->idle);
}

// Copies the JSON description; returns its length (0: the handle is not open).
size_t bam_engine_describe(const void* handle, char* buffer, size_t capacity) {
  return bam::guarded(size_t{0}, [&]() -> size_t {
    std::shared_ptr<bam::Engine> engine = bam::find_engine(handle);
    return engine == nullptr ? 0 : bam::copy_text(engine->describe(), buffer, capacity);
  });
}

// Copies the open files as a JSON list; returns its length (0: the handle is not open).
size_t bam_engine_files(const void* handle, char* buffer, size_t capacity) {
  return bam::guarded(size_t{0}, [&]() -> size_t {
    std::shared_ptr<bam::Engine> engine = bam::find_engine(handle);
    if (engine == nullptr) return 0;
    std::vector<std::string> files;
    for (const bam::FileInfo& file : engine->files()) {
      files.push_back(bam::JsonObject()
                          .text("path", file.path)
                          .number("bytes", static_cast<int64_t>(file.bytes))
                          .number("offset_alignment", file.offset_alignment)
                          .number("memory_alignment", file.memory_alignment)
                          .flag("direct", file.direct)
                          .str());
    }
    return bam::copy_text(bam::json_list(files), buffer, capacity);
  });
}

// 0 when the file's bytes before `end` are what they were when it was opened. ENODATA when it ends earlier now, ESTALE
// when it was rewritten, else the errno of looking; EBADF when the handle is not open or has no such file.
int32_t bam_engine_check_file(const void* handle, uint32_t file, uint64_t end) {
  return bam::guarded(int32_t{ENOMEM}, [&]() -> int32_t {
    std::shared_ptr<bam::Engine> engine = bam::find_engine(handle);
    if (engine == nullptr || file >= engine->files().size()) return EBADF;
    bam::FileLook look = engine->look(file);
    return look.error != 0 ? look.error : look.bytes < end ? ENODATA : 0;
  });
}

// Size of the file now, or -EBADF.
int64_t bam_engine_bytes_now(const void* handle, uint32_t file) {
  return bam::guarded(int64_t{-ENOMEM}, [&]() -> int64_t {
    std::shared_ptr<bam::Engine> engine = bam::find_engine(handle);
    if (engine == nullptr || file >= engine->files().size()) return -EBADF;
    return static_cast<int64_t>(engine->bytes_now(file));
  });
}

// What the device said of the last failed read that touched byte `offset`; returns the length of the text.
size_t bam_engine_explain(const void* handle, uint32_t file, uint64_t offset, char* buffer, size_t capacity) {
  return bam::guarded(size_t{0}, [&] {
    std::shared_ptr<bam::Engine> engine = bam::find_engine(handle);
    bool known = engine != nullptr && file < engine->files().size();
    return bam::copy_text(known ? engine->explain(file, offset) : "", buffer, capacity);
  });
}

// Reads `count` requests and waits for all: the raw engine contract, no retries. requests[i].tag must be i;
// results[i] is bytes or -errno. Returns 0, EBADF (handle not open) or EIO with a reason in `error`.
int32_t bam_engine_read(const void* handle, const bam::ReadRequest* requests, uint64_t count, int64_t* results,
                        char* error, size_t capacity) {
  return bam::guarded(int32_t{ENOMEM}, [&]() -> int32_t {
    std::shared_ptr<bam::Entry> entry = bam::find_entry(handle);
    if (entry == nullptr) return EBADF;
    std::string reason;
    std::unique_ptr<bam::Channel> channel = entry->take(&reason);
    if (channel == nullptr) {
      bam::copy_text(reason, error, capacity);
      return EIO;
    }
    bam::read_batch(*channel, requests, count, results);
    entry->give_back(std::move(channel));
    return 0;
  });
}

}  // extern "C"
