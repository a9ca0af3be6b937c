// The native library under real threads: stores that share a cache, span readers, host queues and the controller,
// over a file in the temporary directory.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>

#include "bam/host_queues.h"
#include "bam/software_controller.h"
#include "bam/span_reader.h"
#include "bam/store.h"
#include "engine_registry.h"
#include "stress_cache.h"

extern "C" {
void* bam_file_engine_create(const char* const* paths, uint32_t count, int32_t want_direct, uint32_t threads,
                             char* error, size_t capacity);
void* bam_uring_engine_create(const char* const* paths, uint32_t count, int32_t want_direct, uint32_t without,
                              char* error, size_t capacity);
void bam_engine_destroy(void* handle);
}

namespace stress {
namespace {

constexpr uint64_t kFileBytes = 1u << 20;
constexpr uint64_t kRowBytes = 192;  // rows straddle pages
constexpr uint64_t kRows = kFileBytes / kRowBytes;
constexpr uint64_t kBlocks = kFileBytes / bam::kBlockBytes;

uint8_t byte_at(uint64_t offset) { return static_cast<uint8_t>(bam::mix64(offset / 8) >> 8 * (offset % 8)); }

bool right_bytes(const uint8_t* bytes, uint64_t offset, uint64_t length) {
  for (uint64_t i = 0; i < length; i++)
    if (bytes[i] != byte_at(offset + i)) return false;
  return true;
}

// A file of kFileBytes known bytes; gone with the object.
class TestFile {
 public:
  TestFile() : path_((std::filesystem::temp_directory_path() / "bam-stress-XXXXXX").string()) {
    descriptor_ = mkstemp(path_.data());
    std::vector<uint8_t> bytes(kFileBytes);
    for (uint64_t i = 0; i < kFileBytes; i++) bytes[i] = byte_at(i);
    good_ = descriptor_ >= 0 && write(descriptor_, bytes.data(), kFileBytes) == static_cast<ssize_t>(kFileBytes);
  }
  ~TestFile() {
    if (descriptor_ >= 0) close(descriptor_);
    unlink(path_.c_str());
  }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  bool good() const { return good_; }
  const char* path() const { return path_.c_str(); }
  void cut(uint64_t bytes) { good_ = ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0; }

 private:
  std::string path_;
  int descriptor_ = -1;
  bool good_ = false;
};

enum class EngineKind { file, uring };

std::shared_ptr<bam::Engine> open_engine(EngineKind kind, const TestFile& file, std::string* error) {
  const char* paths[] = {file.path()};
  char reason[512] = "";
  void* handle = kind == EngineKind::file ? bam_file_engine_create(paths, 1, 0, 2, reason, sizeof reason)
                                          : bam_uring_engine_create(paths, 1, 0, 0, reason, sizeof reason);
  *error = reason;
  if (handle == nullptr) return nullptr;
  std::shared_ptr<bam::Engine> engine = bam::find_engine(handle);
  bam_engine_destroy(handle);
  return engine;
}

// The whole file as one extent; `extent` must outlive the layout.
bam::Layout layout_of(const bam::Extent& extent) { return {&extent, 1, extent.length, 0, 1}; }

struct StoreLoad {
  bam::Policy policy;
  uint64_t n_lines;
  uint32_t n_threads;
  uint32_t gathers;  // of each thread
};

// Threads gather random rows from one store and check each byte; rows past `file_bytes` must fail, and no others.
std::string stress_store(const StoreLoad& load, std::shared_ptr<bam::Engine> engine, uint64_t file_bytes,
                         Checks& checks) {
  int error = 0;
  std::shared_ptr<bam::HostCache> cache = bam::HostCache::create({load.n_lines, kPageBytes, load.policy, 1}, &error);
  const bam::Extent extent{0, kFileBytes, 0, 0, 0};
  bam::Store store(std::move(engine), layout_of(extent), cache, {kPageBytes, 16, 4096, 0, 60'000, 1u << 24, 0});
  std::atomic<uint64_t> failed{0};
  run_threads(load.n_threads, [&](uint32_t thread) {
    Random random(thread);
    for (uint32_t i = 0; i < load.gathers; i++) {
      std::vector<int64_t> ids(1 + random.below(64));
      std::vector<uint64_t> uses(ids.size());
      for (int64_t& id : ids) id = static_cast<int64_t>(random.below(i % 2 == 0 ? kRows : 64));
      for (uint64_t& use : uses) use = random.below(8);
      std::vector<uint8_t> out(ids.size() * kRowBytes);
      bam::GatherResult result{};
      std::string reason;
      bam::GatherRequest request{ids.data(), ids.size(), uses.data(), out.data(), kRowBytes, nullptr};
      int status = store.gather(request, &result, &reason);
      checks.expect(status == 0, "a gather could not start");
      bool should_fail = false;
      for (size_t k = 0; k < ids.size(); k++) {
        uint64_t offset = static_cast<uint64_t>(ids[k]) * kRowBytes;
        if (offset + kRowBytes > file_bytes) should_fail = true;
        else checks.expect(right_bytes(&out[k * kRowBytes], offset, kRowBytes), "a row has wrong bytes");
      }
      checks.expect((result.error != 0) == should_fail, "a gather failed for nothing, or did not fail");
      failed += result.error != 0;
      bam::note_use<bam::HostPlatform>(cache->state, random.below(kFileBytes / kPageBytes), random.below(8));
      if (i % 16 == 0) bam::forget_uses<bam::HostPlatform>(cache->state, random.below(8), bam::kNever);
    }
  });
  for (uint64_t line = 0; line < cache->n_lines(); line++)
    checks.expect(bam::pins_of(cache->state.lines[line]) == 0, "pins are left");
  bam::StoreCounters counted = store.counters();
  checks.expect(counted.reads != 0 && counted.hits != 0, "no reads or no hits");
  return std::to_string(counted.rows) + " rows, " + std::to_string(counted.hits) + " hits, " +
         std::to_string(counted.joins) + " joins, " + std::to_string(counted.reads) + " reads, " +
         std::to_string(counted.bypasses) + " bypasses, " + std::to_string(failed) + " gathers failed";
}

// Each thread has a reader of its own over one engine.
std::string stress_readers(std::shared_ptr<bam::Engine> engine, Checks& checks) {
  const bam::Extent extent{0, kFileBytes, 0, 0, 0};
  std::atomic<uint64_t> ranges{0};
  run_threads(4, [&](uint32_t thread) {
    std::string reason;
    bam::Layout layout = layout_of(extent);
    auto reader = bam::SpanReader::create(*engine, layout, 8, 8192, &reason);
    checks.expect(reader != nullptr, "no reader");
    if (reader == nullptr) return;
    struct Context {
      Checks& checks;
      std::atomic<uint64_t>& ranges;
    } context{checks, ranges};
    auto on_done = [](void* at, const bam::RangeResult& result) {
      auto& self = *static_cast<Context*>(at);
      self.checks.expect(result.error == 0 && right_bytes(result.bytes, result.tag, result.length), "wrong bytes");
      self.ranges++;
    };
    Random random(thread);
    for (uint32_t started = 0; started < 400 || reader->in_flight() != 0;) {
      for (; started < 400 && reader->can_start(8192); started++) {
        uint64_t offset = random.below(kFileBytes - 8192);
        reader->start(offset, static_cast<uint32_t>(1 + random.below(8192)), offset);
      }
      reader->advance(1000, on_done, &context);
    }
  });
  checks.expect(ranges == 1600, "ranges are missing");
  return std::to_string(ranges) + " ranges";
}

// Threads read blocks through queue pairs that the controller answers; then the controller stops under them.
std::string stress_controller(std::shared_ptr<bam::Engine> engine, Checks& checks, uint32_t merge_bytes) {
  const bam::Extent extent{0, kFileBytes, 0, 0, 0};
  bam::HostQueues queues(3, 8);
  std::string reason;
  auto controller = bam::SoftwareController::create(std::move(engine), layout_of(extent), queues.pairs(),
                                                    {2, 16, 4096, 60'000, 0, nullptr, nullptr, 0, merge_bytes, 512},
                                                    &reason);
  checks.expect(controller != nullptr, "no controller");
  if (controller == nullptr) return reason;
  std::atomic<uint64_t> batches{0}, closed{0};
  std::atomic<uint32_t> finished{0};
  constexpr uint32_t kThreads = 4, kRounds = 60;
  run_threads(kThreads + 1, [&](uint32_t thread) {
    if (thread == kThreads) {  // stops the rest in the middle of their last rounds
      while (finished.load() < kThreads) std::this_thread::yield();
      queues.set_life(bam::QueueLife::closing);
      controller->stop();
      queues.set_life(bam::QueueLife::dead);
      return;
    }
    Random random(thread);
    for (uint32_t i = 0;; i++) {
      if (i == kRounds) finished++;
      uint64_t slbas[24];
      std::vector<uint8_t> out(24 * 2 * bam::kBlockBytes);
      for (uint64_t& slba : slbas) slba = random.below(kBlocks - 1);
      bam::BatchOutcome outcome = queues.read({slbas, 24, out.data(), 2 * bam::kBlockBytes, 2, 60'000});
      if (outcome.state != bam::BatchState::done) {
        checks.expect(i >= kRounds && outcome.state != bam::BatchState::timed_out, "a batch failed for nothing");
        closed++;
        return;
      }
      batches++;
      for (uint32_t k = 0; k < 24; k++)
        checks.expect(right_bytes(&out[k * 2 * bam::kBlockBytes], slbas[k] * bam::kBlockBytes, 2 * bam::kBlockBytes),
                      "a block has wrong bytes");
    }
  });
  checks.expect(closed == kThreads && batches >= kThreads * kRounds, "batches are missing");
  return std::to_string(batches) + " batches of 24 commands, " + std::to_string(controller->counters().aborted) +
         " aborted";
}

// What an engine whose disk does not answer has taken, and a thread that answers it late.
class LateDisk {
 public:
  LateDisk() : thread_([this] { answer(); }) {}
  ~LateDisk() {
    open();
    thread_.join();
  }
  void take(const bam::ReadRequest& request) {
    std::lock_guard lock(mutex_);
    taken_.push_back(request);
  }
  // Everything taken is written to its destination; returns when that was done.
  void open() {
    std::unique_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return taken_.empty(); });
  }

 private:
  void answer() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
    for (const bam::ReadRequest& request : taken_) std::memset(request.destination, 0xee, request.length);
    taken_.clear();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bam::ReadRequest> taken_;
  bool open_ = false;
  std::thread thread_;
};

// Its reads never end. What is destroyed before them would be written to all the same.
class SilentEngine final : public bam::Engine {
 public:
  explicit SilentEngine(LateDisk& disk) : disk_(disk), files_{{"silent", kFileBytes, 512, 512, true}} {}
  std::unique_ptr<bam::Channel> open_channel(uint32_t depth, std::string*) override {
    return std::make_unique<SilentChannel>(disk_, depth);
  }
  const std::vector<bam::FileInfo>& files() const override { return files_; }
  std::string describe() const override { return "{}"; }

 private:
  class SilentChannel final : public bam::Channel {
   public:
    SilentChannel(LateDisk& disk, uint32_t depth) : disk_(disk), depth_(depth) {}
    uint32_t submit(const bam::ReadRequest* requests, uint32_t count) override {
      uint32_t taken = std::min(count, depth_ - in_flight_);
      for (uint32_t i = 0; i < taken; i++) disk_.take(requests[i]);
      in_flight_ += taken;
      return taken;
    }
    uint32_t poll(bam::ReadCompletion*, uint32_t, uint32_t wait_us) override {
      std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
      return 0;
    }
    uint32_t depth() const override { return depth_; }
    uint32_t in_flight() const override { return in_flight_; }

   private:
    LateDisk& disk_;
    uint32_t depth_, in_flight_ = 0;
  };

  LateDisk& disk_;
  std::vector<bam::FileInfo> files_;
};

// Gathers give up, closing leaves their reads behind, and the disk writes to where they were to go.
std::string stress_silence(Checks& checks) {
  LateDisk disk;
  const bam::Extent extent{0, kFileBytes, 0, 0, 0};
  int error = 0;
  std::shared_ptr<bam::HostCache> cache = bam::HostCache::create({64, kPageBytes, bam::Policy::clock, 1}, &error);
  uint32_t left = 0;
  {
    bam::Store store(std::make_shared<SilentEngine>(disk), layout_of(extent), cache, {kPageBytes, 16, 4096, 0, 50, 1u << 24, 0});
    run_threads(3, [&](uint32_t thread) {
      std::vector<int64_t> ids(64);
      for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int64_t>((thread * 97 + i * 53) % kRows);
      std::vector<uint8_t> out(ids.size() * kRowBytes);
      bam::GatherResult result{};
      std::string reason;
      store.gather({ids.data(), ids.size(), nullptr, out.data(), kRowBytes, nullptr}, &result, &reason);
      checks.expect(result.error == ETIMEDOUT, "a gather without an answer did not time out");
    });
    left = store.close(20);
  }
  for (uint64_t line = 0; line < cache->n_lines(); line++)
    checks.expect(bam::pins_of(cache->state.lines[line]) == 0, "pins are left");
  cache.reset();
  checks.expect(left > 0, "no reads were left behind");
  disk.open();
  return std::to_string(left) + " reads left behind";
}

// The same under the controller: commands are aborted.
std::string stress_silent_controller(Checks& checks, uint32_t merge_bytes) {
  LateDisk disk;
  const bam::Extent extent{0, kFileBytes, 0, 0, 0};
  bam::HostQueues queues(2, 8);
  std::string reason;
  auto controller = bam::SoftwareController::create(std::make_shared<SilentEngine>(disk), layout_of(extent),
                                                    queues.pairs(),
                                                    {2, 16, 4096, 20, 0, nullptr, nullptr, 0, merge_bytes, 4096},
                                                    &reason);
  checks.expect(controller != nullptr, "no controller");
  if (controller == nullptr) return reason;
  // They outlive the disk's answers, as the memory of commands must that were aborted with ETIMEDOUT.
  std::vector<uint8_t> outs[2] = {std::vector<uint8_t>(4 * bam::kBlockBytes), std::vector<uint8_t>(4 * bam::kBlockBytes)};
  run_threads(3, [&](uint32_t thread) {
    if (thread == 2) {
      while (controller->counters().commands < 2) std::this_thread::yield();
      queues.set_life(bam::QueueLife::closing);
      controller->stop();
      queues.set_life(bam::QueueLife::dead);
      return;
    }
    uint64_t slbas[4] = {thread, 8, 16, 24};
    bam::BatchOutcome outcome = queues.read({slbas, 4, outs[thread].data(), bam::kBlockBytes, 1, 60'000});
    bool given_up = outcome.state == bam::BatchState::failed || outcome.state == bam::BatchState::closed;
    checks.expect(given_up, "a batch without an answer did not fail");
  });
  uint64_t left = controller->counters().left_behind;
  checks.expect(left > 0, "no reads were left behind");
  controller.reset();
  disk.open();
  return std::to_string(left) + " reads left behind";
}

using Body = std::function<std::string(std::shared_ptr<bam::Engine>, Checks&)>;

// With a fresh file and engine. A kernel that refuses io_uring is no failure of ours, and shows.
Test with_engine(std::string name, EngineKind kind, uint64_t file_bytes, Body body) {
  name += kind == EngineKind::file ? ", engine file" : ", engine uring";
  return {name, [=](Checks& checks) -> std::string {
            TestFile file;
            checks.expect(file.good(), "the test file cannot be written");
            std::string reason;
            std::shared_ptr<bam::Engine> engine = open_engine(kind, file, &reason);
            if (engine == nullptr && kind == EngineKind::uring) return "SKIPPED, no io_uring here: " + reason;
            checks.expect(engine != nullptr, "no engine");
            if (engine == nullptr) return reason;
            if (file_bytes < kFileBytes) file.cut(file_bytes);
            return body(std::move(engine), checks);
          }};
}

}  // namespace

std::vector<Test> library_tests() {
  std::vector<Test> tests;
  for (EngineKind kind : {EngineKind::file, EngineKind::uring}) {
    for (bam::Policy policy : {bam::Policy::clock, bam::Policy::sieve, bam::Policy::look_ahead})
      for (uint64_t n_lines : {4, 300})
        tests.push_back(with_engine(std::string("store, ") + kPolicyNames[static_cast<uint32_t>(policy)] +
                                        ", lines: " + std::to_string(n_lines),
                                    kind, kFileBytes, [=](std::shared_ptr<bam::Engine> engine, Checks& checks) {
                                      return stress_store({policy, n_lines, 6, 40}, engine, kFileBytes, checks);
                                    }));
    constexpr uint64_t kCut = kFileBytes / 2 + 100;
    tests.push_back(with_engine("store over a file that was cut", kind, kCut,
                                [](std::shared_ptr<bam::Engine> engine, Checks& checks) {
                                  return stress_store({bam::Policy::look_ahead, 64, 6, 40}, engine, kCut, checks);
                                }));
    tests.push_back(with_engine("span readers", kind, kFileBytes, stress_readers));
    for (uint32_t merge_bytes : {0, 65536})
      tests.push_back(with_engine("host queues and controller, merged reads: " + std::to_string(merge_bytes), kind,
                                  kFileBytes, [=](std::shared_ptr<bam::Engine> engine, Checks& checks) {
                                    return stress_controller(engine, checks, merge_bytes);
                                  }));
  }
  tests.push_back({"store over a disk that does not answer", stress_silence});
  for (uint32_t merge_bytes : {0, 65536})
    tests.push_back({"controller over a disk that does not answer, merged reads: " + std::to_string(merge_bytes),
                     [=](Checks& checks) { return stress_silent_controller(checks, merge_bytes); }});
  return tests;
}

}  // namespace stress
