// A page state with the classic bug: a busy bit that is taken in one atomic step and judged by an older one.
//
// One line of one page. Whoever finds it neither valid nor busy takes the busy bit, reads the page, sets the valid
// bit and clears the busy bit. When the page becomes valid between a thread's look and its fetch_or, that thread
// rightly calls it a hit, and forgets the busy bit it has just set: the line can never be evicted again.
#pragma once

#include "scenario.h"

namespace model {

constexpr uint32_t kBusy = 1u << 31, kValid = 1u << 30;  // below: pins

template <class P>
struct BusyBitLine {
  // True: the caller must read the page and call publish().
  static bool acquire(uint32_t& line) {
    typename P::template Atomic<uint32_t> word(line);
    uint32_t seen = word.fetch_add(1, P::acquire);
    for (;;) {
      if (seen & kValid) return false;
      if (!(seen & kBusy)) {
        seen = word.fetch_or(kBusy, P::acquire);
        if (seen & kValid) return false;  // the bug: busy stays set
        if (!(seen & kBusy)) return true;
      }
      P::pause();
      seen = word.load(P::acquire);
    }
  }
  static void publish(uint32_t& line) {
    typename P::template Atomic<uint32_t> word(line);
    word.fetch_or(kValid, P::release);
    word.fetch_and(~kBusy, P::release);
  }
  static void release(uint32_t& line) { typename P::template Atomic<uint32_t>(line).fetch_sub(1, P::release); }
  // The next user of the line waits until it may take it.
  static void evict(uint32_t& line) {
    typename P::template Atomic<uint32_t> word(line);
    uint32_t idle = kValid;
    while (!word.compare_exchange_strong(idle, 0, P::acquire, P::relaxed)) {
      if (idle == 0) return;
      idle = kValid;
      P::pause();
    }
  }
};

struct BusyBitWorld {
  uint32_t line;
  uint32_t finished;
  explorer::Plain<uint64_t> bytes;

  void run(uint32_t) {
    using P = explorer::ScheduledPlatform;
    if (BusyBitLine<P>::acquire(line)) {
      bytes.store(42);
      BusyBitLine<P>::publish(line);
    }
    explorer::expect(bytes.load() == 42, "a holder reads bytes that were never read in");
    BusyBitLine<P>::release(line);
    if (P::Atomic<uint32_t>(finished).fetch_add(1, P::acq_rel) == 1) BusyBitLine<P>::evict(line);
  }
};

inline BusyBitWorld& busy_bit_world() {
  static BusyBitWorld world;
  return world;
}

inline std::string describe_busy_bit(uint64_t word) {
  return std::string("{pins ") + std::to_string(word & (kValid - 1)) + (word & kBusy ? ", busy" : "") +
         (word & kValid ? ", valid}" : "}");
}

inline explorer::Scenario busy_bit_scenario() {
  return {"planted: busy bit leaks", [] {
            explorer::Program program{&busy_bit_world(), sizeof(BusyBitWorld), 2,
                                      [](void* at, uint32_t t) { static_cast<BusyBitWorld*>(at)->run(t); },
                                      [](void*) {}, [](const void*) {}};
            busy_bit_world() = {};
            return explorer::Search(program, {}).run();
          },
          [] {
            explorer::Names names;
            names.add("line", &busy_bit_world().line, 1, describe_busy_bit);
            names.add("finished", &busy_bit_world().finished);
            names.add("bytes", &busy_bit_world().bytes);
            return names;
          },
          "stuck"};
}

}  // namespace model
