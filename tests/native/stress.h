// What the stress tests share: threads that start together, a cheap generator, checks that count.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bam/policy.h"

namespace stress {

// Counts failed checks of the test that runs; the first few are printed.
class Checks {
 public:
  void expect(bool holds, const char* what) {
    if (holds) return;
    if (failures_.fetch_add(1, std::memory_order_relaxed) < 5) std::printf("    failed: %s\n", what);
  }
  uint64_t failures() const { return failures_.load(); }

 private:
  std::atomic<uint64_t> failures_{0};
};

// The same numbers for the same seed.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t below(uint64_t limit) { return bam::mix64(state_ += 0x9e3779b97f4a7c15ull) % limit; }

 private:
  uint64_t state_;
};

// Runs body(thread) on `n_threads` threads that start at once.
inline void run_threads(uint32_t n_threads, const std::function<void(uint32_t)>& body) {
  std::barrier together(static_cast<std::ptrdiff_t>(n_threads));
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < n_threads; t++)
    threads.emplace_back([&, t] {
      together.arrive_and_wait();
      body(t);
    });
  for (std::thread& thread : threads) thread.join();
}

// A test says on its own what it did, so that one that did nothing shows.
struct Test {
  std::string name;
  std::function<std::string(Checks&)> run;
};

// Prints one line a test and a closing one; the exit status.
inline int run_tests(const std::vector<Test>& tests) {
  uint32_t passed = 0, failed = 0;
  for (const Test& test : tests) {
    auto start = std::chrono::steady_clock::now();
    Checks checks;
    std::string did = test.run(checks);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    bool good = checks.failures() == 0;
    (good ? passed : failed)++;
    std::printf("%s %s: %s, %.1f s\n", good ? "ok    " : "FAILED", test.name.c_str(), did.c_str(), seconds);
    std::fflush(stdout);
  }
  std::printf("%u passed, %u failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

std::vector<Test> cache_tests();
std::vector<Test> queue_tests();
std::vector<Test> library_tests();
std::vector<Test> reset_tests();
std::vector<Test> allocation_tests();
std::vector<Test> gpu_tests();

}  // namespace stress
