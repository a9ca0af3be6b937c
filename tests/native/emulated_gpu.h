// A platform for kernels on the host: every thread of a grid is a fiber, and they take turns.
//
// A thread goes on until it pauses or waits for others of its warp or block; whose turn comes next is drawn, if a seed
// says so, since a GPU promises no order either. All threads of the grid exist at once, so what passes here may still
// need more resident blocks than a GPU has; and they never run at the same time, so data races are not seen: those are
// the explorer's and the sanitizers' part.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "bam/platform.h"
#include "fiber.h"

namespace emulated {

constexpr uint32_t kWarp = 32;

// Where threads wait for each other; the last one to come opens it. Threads that ended are not waited for.
struct Meeting {
  uint32_t members = 0;
  uint32_t arrived = 0;
  uint64_t generation = 0;
  uint64_t values[kWarp] = {};   // of the lanes that come now
  uint64_t results[kWarp] = {};  // of those that came last
  bool vote = false, result = false;

  void open() {
    std::memcpy(results, values, sizeof results);
    std::memset(values, 0, sizeof values);
    result = vote;
    vote = false;
    arrived = 0;
    generation++;
  }
  void leave() {
    members--;
    if (members != 0 && arrived == members) open();
  }
};

struct Thread {
  explorer::Fiber fiber;
  uint32_t block, index, blocks, threads;
  Meeting* warp;
  Meeting* whole_block;
  void (*body)(const void*);
  const void* argument;
};

inline Thread*& current() {
  static Thread* thread = nullptr;
  return thread;
}
// Turns in which somebody did something else than wait.
inline uint64_t& news() {
  static uint64_t count = 0;
  return count;
}

// Draws the order of turns; 0: threads take them in the order of their numbers.
inline uint64_t& turn_seed() {
  static uint64_t seed = 0;
  return seed;
}

inline void meet(Meeting& meeting) {
  uint64_t generation = meeting.generation;
  news()++;
  if (++meeting.arrived == meeting.members) return meeting.open();
  while (meeting.generation == generation) explorer::Fiber::suspend();
}

// Runs body(argument) as a grid would.
inline void run_grid(uint32_t blocks, uint32_t threads, void (*body)(const void*), const void* argument) {
  uint32_t warps = threads / kWarp;
  std::vector<Meeting> warp_meetings(blocks * warps), block_meetings(blocks);
  std::vector<std::unique_ptr<Thread>> all;
  for (Meeting& meeting : warp_meetings) meeting.members = kWarp;
  for (Meeting& meeting : block_meetings) meeting.members = threads;
  for (uint32_t i = 0; i < blocks * threads; i++) {
    auto thread = std::make_unique<Thread>();
    thread->block = i / threads;
    thread->index = i % threads;
    thread->blocks = blocks;
    thread->threads = threads;
    thread->warp = &warp_meetings[i / kWarp];
    thread->whole_block = &block_meetings[i / threads];
    thread->body = body;
    thread->argument = argument;
    thread->fiber.start([](void* self) { static_cast<Thread*>(self)->body(static_cast<Thread*>(self)->argument); },
                        thread.get());
    all.push_back(std::move(thread));
  }
  std::mt19937_64 random(turn_seed());
  while (!all.empty()) {
    uint64_t before = news();
    if (turn_seed() != 0) std::shuffle(all.begin(), all.end(), random);
    for (auto& thread : all) {
      current() = thread.get();
      thread->fiber.resume();
      if (!thread->fiber.position.finished) continue;
      news()++;
      thread->warp->leave();
      thread->whole_block->leave();
      thread.reset();
    }
    std::erase(all, nullptr);
    if (news() == before) sched_yield();  // all wait for the controller's threads
  }
}

struct EmulatedGpu : bam::HostPlatform {
  static constexpr bool kWritesAreCheap = true;
  static void pause() { explorer::Fiber::suspend(); }
  static uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  }

  static uint32_t lane() { return current()->index % kWarp; }
  static uint32_t thread() { return current()->index; }
  static uint32_t threads() { return current()->threads; }
  static uint32_t block() { return current()->block; }
  static uint32_t blocks() { return current()->blocks; }

  static uint32_t ballot(bool vote) {
    Meeting& warp = exchange(vote ? 1 : 0);
    uint32_t votes = 0;
    for (uint32_t lane = 0; lane < kWarp; lane++) votes |= warp.results[lane] != 0 ? 1u << lane : 0;
    return votes;
  }
  template <class T>
  static T shuffle(T value, uint32_t from) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = exchange(bits).results[from];
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  template <class T>
  static T shuffle_among(uint32_t mask, T value, uint32_t from) {
    return mask == ~0u ? shuffle(value, from) : value;
  }
  // Lanes that are not converged are alone, as converged() says; only whole warps meet.
  static uint32_t match(uint32_t mask, uint64_t value) {
    if (mask != ~0u) return mask;
    Meeting& warp = exchange(value);
    uint32_t equal = 0;
    for (uint32_t lane = 0; lane < kWarp; lane++) equal |= warp.results[lane] == value ? 1u << lane : 0;
    return equal;
  }
  static void sync_warp(uint32_t mask = ~0u) {
    if (mask == ~0u) exchange(0);
  }
  static uint32_t converged() { return 1u << lane(); }
  static bool any_in_block(bool vote) {
    Meeting& block = *current()->whole_block;
    block.vote |= vote;
    meet(block);
    return block.result;
  }

  template <class T>
  static T load_fresh(const T* from) {
    return *from;
  }
  template <class T>
  static T load_once(const T* from) {
    return *from;
  }
  template <class T>
  static void store_once(T* to, const T& value) {
    *to = value;
  }

 private:
  static Meeting& exchange(uint64_t value) {
    Meeting& warp = *current()->warp;
    warp.values[lane()] = value;
    meet(warp);
    return warp;
  }
};

}  // namespace emulated
