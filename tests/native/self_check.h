// The explorer against itself: small programs whose states, ends and bugs are known without it.
#pragma once

#include <algorithm>
#include <array>
#include <random>
#include <set>

#include "scenario.h"

namespace model {

using explorer::Findings;
using explorer::Scenario;
using SelfPlatform = explorer::ScheduledPlatform;

// Runs the `Model`'s threads: run(thread), check_end() const.
template <class Model>
Findings explore_model(Model& world, uint32_t n_threads) {
  explorer::Program program{&world, sizeof world, n_threads,
                            [](void* at, uint32_t thread) { static_cast<Model*>(at)->run(thread); }, [](void*) {},
                            [](const void* at) { static_cast<const Model*>(at)->check_end(); }};
  return explorer::Search(program, {}).run();
}

template <class Model>
Scenario self_check(std::string name, uint32_t n_threads, std::string violation, uint64_t exact_states = 0) {
  static Model world;
  return {std::move(name), [=] {
            world = {};
            Findings findings = explore_model(world, n_threads);
            if (exact_states != 0 && findings.states != exact_states)
              findings.violation = "expected exactly " + std::to_string(exact_states) + " states";
            return findings;
          },
          [] { return explorer::Names(); }, std::move(violation)};
}

// Three threads of three steps that never meet: the states are the points of a 4 x 4 x 4 grid.
struct Strangers {
  uint64_t words[3];
  void run(uint32_t thread) {
    for (int i = 0; i < 3; i++) SelfPlatform::Atomic<uint64_t>(words[thread]).fetch_add(1, SelfPlatform::relaxed);
  }
  void check_end() const {}
};

struct LostUpdate {
  uint64_t word;
  void run(uint32_t) {
    SelfPlatform::Atomic<uint64_t> reference(word);
    uint64_t seen = reference.load();
    reference.store(seen + 1);
  }
  void check_end() const { explorer::expect(word == 2, "an update is lost"); }
};

// Two locks in two orders.
struct DeadlyEmbrace {
  uint32_t locks[2];
  void run(uint32_t thread) {
    for (uint32_t i = 0; i < 2; i++) {
      SelfPlatform::Atomic<uint32_t> lock(locks[(thread + i) % 2]);
      while (lock.exchange(1) != 0) SelfPlatform::pause();
    }
    for (uint32_t& lock : locks) SelfPlatform::Atomic<uint32_t>(lock).store(0);
  }
  void check_end() const {}
};

// Waits for a word that nobody writes.
struct WaitForNobody {
  uint32_t word;
  void run(uint32_t thread) {
    if (thread == 0) return;
    while (SelfPlatform::Atomic<uint32_t>(word).load() == 0) SelfPlatform::pause();
  }
  void check_end() const {}
};

// A compare-exchange that nobody disturbs fails only for no reason; that too must be tried.
struct SpuriousFailure {
  uint32_t word;
  bool failed;
  void run(uint32_t) {
    uint32_t zero = 0;
    failed = !SelfPlatform::Atomic<uint32_t>(word).compare_exchange_weak(zero, 1);
  }
  void check_end() const { explorer::expect(!failed, "failed for no reason"); }
};

// Data handed over by a flag: the writer sets it with `kStore`, thread 1 adds to it, relaxed, and thread 2 waits for
// that sum with `kLoad`. Read-modify-writes keep a release sequence going, so release and acquire suffice.
template <std::memory_order kStore, std::memory_order kLoad>
struct HandOver {
  explorer::Plain<uint64_t> data;
  uint32_t flag;
  void run(uint32_t thread) {
    SelfPlatform::Atomic<uint32_t> reference(flag);
    if (thread == 0) {
      data.store(7);
      reference.store(1, kStore);
    } else if (thread == 1) {
      while (reference.load(SelfPlatform::relaxed) == 0) SelfPlatform::pause();
      reference.fetch_add(1, SelfPlatform::relaxed);
    } else {
      while (reference.load(kLoad) != 2) SelfPlatform::pause();
      explorer::expect(data.load() == 7, "old data");
    }
  }
  void check_end() const {}
};

// Random programs on two words, whose ends are also found by trying every interleaving without fibers or hashes.
struct RandomProgram {
  enum Kind : uint32_t { kLoad, kStore, kAdd, kExchange, kCompareExchange };
  struct Instruction {
    Kind kind;
    uint32_t word;
    uint64_t operand;
  };
  static constexpr uint32_t kThreads = 3, kLength = 3;
  using Code = std::array<std::array<Instruction, kLength>, kThreads>;
  struct Memory {
    uint64_t words[2];
    uint64_t registers[kThreads];
    auto operator<=>(const Memory&) const = default;
  };

  Memory memory;
  const Code* code;
  std::set<Memory>* ends;

  // The operand depends on what the thread saw last, so a mixed-up thread ends elsewhere.
  static uint64_t operand(const Instruction& instruction, uint64_t seen) { return 3 * seen + instruction.operand; }

  void run(uint32_t thread) {
    uint64_t seen = 0;
    for (const Instruction& instruction : (*code)[thread]) {
      SelfPlatform::Atomic<uint64_t> word(memory.words[instruction.word]);
      uint64_t value = operand(instruction, seen);
      switch (instruction.kind) {
        case kLoad: seen = word.load(); break;
        case kStore: word.store(value); break;
        case kAdd: seen = word.fetch_add(value); break;
        case kExchange: seen = word.exchange(value); break;
        case kCompareExchange: word.compare_exchange_strong(seen, value); break;
      }
    }
    memory.registers[thread] = seen;
  }
  void check_end() const { ends->insert(memory); }

  static void apply(const Instruction& instruction, Memory& memory, uint64_t& seen) {
    uint64_t& word = memory.words[instruction.word];
    uint64_t before = word, value = operand(instruction, seen);
    switch (instruction.kind) {
      case kLoad: break;
      case kStore: word = value; return;
      case kAdd: word += value; break;
      case kExchange: word = value; break;
      case kCompareExchange:
        if (before == seen) word = value;
        break;
    }
    seen = before;
  }

  static void try_all(const Code& code, std::array<uint32_t, kThreads> next, const Memory& memory,
                      std::set<Memory>& ends) {
    bool finished = true;
    for (uint32_t t = 0; t < kThreads; t++) {
      if (next[t] == kLength) continue;
      finished = false;
      Memory after = memory;
      apply(code[t][next[t]], after, after.registers[t]);
      std::array<uint32_t, kThreads> then = next;
      then[t]++;
      try_all(code, then, after, ends);
    }
    if (finished) ends.insert(memory);
  }
};

inline Findings compare_random_programs(uint32_t n_programs) {
  std::mt19937 random(12345);
  static RandomProgram world;
  Findings total;
  for (uint32_t i = 0; i < n_programs; i++) {
    RandomProgram::Code code;
    for (auto& thread : code)
      for (RandomProgram::Instruction& instruction : thread)
        instruction = {static_cast<RandomProgram::Kind>(random() % 5), static_cast<uint32_t>(random() % 2),
                       random() % 3};
    std::set<RandomProgram::Memory> found, expected;
    world = {{}, &code, &found};
    Findings findings = explore_model(world, RandomProgram::kThreads);
    RandomProgram::try_all(code, {}, {}, expected);
    total.states += findings.states;
    total.steps += findings.steps;
    total.ends += expected.size();
    total.longest = std::max(total.longest, findings.longest);
    if (!findings.violation.empty()) total.violation = findings.violation;
    if (found != expected) total.violation = "program " + std::to_string(i) + " ends otherwise than by brute force";
  }
  return total;
}

inline std::vector<Scenario> self_check_scenarios() {
  constexpr auto relaxed = std::memory_order_relaxed, acquire = std::memory_order_acquire,
                 release = std::memory_order_release;
  return {
      self_check<Strangers>("self: strangers' states form a grid", 3, "", 64),
      self_check<LostUpdate>("self: lost update", 2, "an update is lost"),
      self_check<DeadlyEmbrace>("self: two locks in two orders", 2, "stuck"),
      self_check<WaitForNobody>("self: wait for nobody", 2, "stuck"),
      self_check<SpuriousFailure>("self: weak exchange fails for no reason", 1, "failed for no reason"),
      self_check<HandOver<release, acquire>>("self: hand over, release and acquire", 3, ""),
      self_check<HandOver<relaxed, acquire>>("self: hand over, relaxed store", 3, "data race"),
      self_check<HandOver<release, relaxed>>("self: hand over, relaxed load", 3, "data race"),
      {"self: random programs end as by brute force", [] { return compare_random_programs(200); },
       [] { return explorer::Names(); }, "", 10'000},
  };
}

}  // namespace model
