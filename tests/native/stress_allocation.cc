// Every allocation of this thread fails once, the n-th one for each n until a call needs fewer: no exception crosses
// the C ABI, no pin is left, and what failed works afterwards.
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "bam/store.h"
#include "stress.h"

extern "C" {
void* bam_memory_engine_create(const void* const* buffers, const uint64_t* bytes, uint32_t count, int32_t copy,
                               uint32_t alignment, char* error, size_t capacity);
void bam_engine_destroy(void* handle);
size_t bam_engine_describe(const void* handle, char* buffer, size_t capacity);
int bam_cache_create(uint64_t n_lines, uint32_t page_bytes, uint32_t policy, uint64_t seed, void** handle);
void bam_cache_destroy(void* handle);
uint64_t bam_cache_word(void* handle, uint64_t line_id);
void* bam_store_create(void* engine, void* cache, const bam::Layout* layout, const bam::StoreConfig* config);
uint32_t bam_store_destroy(void* store, uint32_t wait_ms);
int bam_store_gather(void* store, const bam::GatherRequest* request, bam::GatherResult* result, char* error,
                     uint64_t error_bytes);
int32_t bam_take_failure();
}

namespace {

thread_local uint64_t allocations_left = ~uint64_t{0};  // the one after these fails

void* allocate(std::size_t bytes) {
  if (allocations_left != ~uint64_t{0} && allocations_left-- == 0) {
    allocations_left = ~uint64_t{0};
    return nullptr;
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

// Not inlined: g++ would see free() of what operator new returned, and warn.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  void* memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return operator new(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace stress {
namespace {

constexpr uint32_t kPage = 512;
constexpr uint64_t kRowBytes = 700, kRows = 2000, kLines = 40;

struct Rows {
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kRows * kRowBytes);
  bam::Extent extent{0, kRows * kRowBytes, 0, 0, 0};
  bam::Layout layout{&extent, 1, kRows * kRowBytes, 0, 1};
  Rows() {
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 11);
  }
};

enum class Attempt { worked, failed, said_so };  // said_so: failed, and its own result says why

// Calls `attempt` with one allocation failing, a later one each time, until it succeeds. Returns how often it failed.
template <class Call>
uint64_t until_success(Checks& checks, Call&& attempt) {
  for (uint64_t n = 0; n < 100'000; n++) {
    allocations_left = n;
    Attempt outcome = attempt();
    bool ran_out = allocations_left == ~uint64_t{0};
    allocations_left = ~uint64_t{0};
    bool told = bam_take_failure() == ENOMEM;
    if (outcome == Attempt::worked && !ran_out) return n;
    checks.expect(outcome != Attempt::failed || told, "a call failed and did not say that it was for lack of memory");
  }
  checks.expect(false, "it never worked");
  return 0;
}

Attempt made(const void* handle) { return handle != nullptr ? Attempt::worked : Attempt::failed; }

std::string stress_create(Checks& checks) {
  Rows rows;
  const void* buffers[] = {rows.bytes.data()};
  uint64_t sizes[] = {rows.bytes.size()};
  char text[512];
  void *engine = nullptr, *cache = nullptr, *store = nullptr;
  uint64_t failed = until_success(checks, [&] {
    if (engine != nullptr) bam_engine_destroy(engine);
    return made(engine = bam_memory_engine_create(buffers, sizes, 1, 0, 512, text, sizeof text));
  });
  failed += until_success(checks, [&] {
    return bam_engine_describe(engine, text, sizeof text) != 0 ? Attempt::worked : Attempt::failed;
  });
  failed += until_success(checks, [&] {
    if (cache != nullptr) bam_cache_destroy(cache);
    cache = nullptr;
    return bam_cache_create(kLines, kPage, 1, 0, &cache) == 0 ? Attempt::worked : Attempt::failed;
  });
  bam::StoreConfig config{kPage, 16, 4096, 0, 60'000, 1u << 24, 0};
  failed += until_success(checks, [&] {
    if (store != nullptr) bam_store_destroy(store, 0);
    return made(store = bam_store_create(engine, cache, &rows.layout, &config));
  });
  bam_store_destroy(store, 0);
  bam_cache_destroy(cache);
  bam_engine_destroy(engine);
  return std::to_string(failed) + " allocations failed";
}

// Gathers of many sizes: hits, joins, bypasses, merged reads, all of them through a cache far too small.
std::string stress_gather(Checks& checks) {
  Rows rows;
  const void* buffers[] = {rows.bytes.data()};
  uint64_t sizes[] = {rows.bytes.size()};
  char text[512];
  void* engine = bam_memory_engine_create(buffers, sizes, 1, 0, 512, text, sizeof text);
  void* cache = nullptr;
  checks.expect(bam_cache_create(kLines, kPage, 3, 0, &cache) == 0 && engine != nullptr, "nothing to read through");
  bam::StoreConfig config{kPage, 16, 4096, 0, 60'000, 1u << 24, 0};
  void* store = bam_store_create(engine, cache, &rows.layout, &config);
  std::vector<int64_t> ids(700);
  for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int64_t>(i * 37 % (i % 3 == 0 ? 50 : kRows));
  std::vector<uint8_t> out(ids.size() * kRowBytes);
  uint64_t failed = until_success(checks, [&] {
    bam::GatherRequest request{ids.data(), ids.size(), nullptr, out.data(), kRowBytes, nullptr};
    bam::GatherResult result{};
    int status = bam_store_gather(store, &request, &result, text, sizeof text);
    for (uint64_t line = 0; line < kLines - kLines % 2; line++)
      checks.expect(bam::pins_of(bam_cache_word(cache, line)) == 0, "a pin is left");
    if (status == -EIO) return std::strstr(text, "no memory") != nullptr ? Attempt::said_so : Attempt::failed;
    if (status != 0) return Attempt::failed;
    checks.expect(result.error == 0, "a gather failed otherwise");
    for (size_t i = 0; i < ids.size(); i++)
      checks.expect(std::memcmp(&out[i * kRowBytes], &rows.bytes[static_cast<size_t>(ids[i]) * kRowBytes], kRowBytes) == 0,
                    "a row has wrong bytes");
    return Attempt::worked;
  });
  bam_store_destroy(store, 0);
  bam_cache_destroy(cache);
  bam_engine_destroy(engine);
  return std::to_string(failed) + " allocations failed";
}

}  // namespace

std::vector<Test> allocation_tests() {
  return {{"handles without memory", stress_create}, {"gathers without memory", stress_gather}};
}

}  // namespace stress
