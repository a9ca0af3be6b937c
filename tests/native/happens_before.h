// Which accesses are ordered by the program's own acquires and releases (vector clocks).
//
// The explorer runs threads one step at a time, so it sees interleavings, not the reordering a weaker machine does.
// These clocks make up for most of that: plain data that two threads touch must be ordered by release and acquire in
// every schedule, and a schedule in which it is not is a violation, however well it went.
// The rules are those of the C++20 memory model: a release store starts a release sequence, read-modify-writes of any
// order continue it, a relaxed store ends it; an acquire that reads from the sequence is ordered after its releases.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace explorer {

constexpr uint32_t kMaxThreads = 4;

struct VectorClock {
  uint8_t at[kMaxThreads];

  void join(const VectorClock& other) {
    for (uint32_t t = 0; t < kMaxThreads; t++) at[t] = at[t] < other.at[t] ? other.at[t] : at[t];
  }
};

inline bool acquires(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_release;
}
inline bool releases(std::memory_order order) {
  return order != std::memory_order_relaxed && order != std::memory_order_acquire;
}

// Plain data, copied into checkpoints. A thread's clock counts its epochs: one ends with a release and the next
// begins with the first plain access after it, so a thread that merely polls stays in its epoch.
class HappensBefore {
 public:
  static constexpr uint32_t kMaxWords = 256;

  void reset() {
    *this = {};
    for (uint32_t t = 0; t < kMaxThreads; t++) threads_[t].at[t] = 1;
  }

  void atomic_load(uint32_t thread, uint32_t word, std::memory_order order) {
    if (acquires(order)) threads_[thread].join(words_[word].released);
  }
  void atomic_store(uint32_t thread, uint32_t word, std::memory_order order) {
    words_[word].released = {};
    if (releases(order)) release(thread, word);
  }
  void atomic_update(uint32_t thread, uint32_t word, std::memory_order order) {
    atomic_load(thread, word, order);
    if (releases(order)) release(thread, word);
  }

  // False: not ordered after the last write (or, for a write, after some read) of another thread.
  bool plain_load(uint32_t thread, uint32_t word) {
    words_[word].readers.at[thread] = epoch_of_access(thread);
    return ordered_after_write(thread, words_[word]);
  }
  bool plain_store(uint32_t thread, uint32_t word) {
    Word& data = words_[word];
    bool ordered = ordered_after_write(thread, data);
    for (uint32_t t = 0; t < kMaxThreads; t++)
      ordered = ordered && (t == thread || data.readers.at[t] <= threads_[thread].at[t]);
    data = {data.released, {}, static_cast<uint8_t>(thread), epoch_of_access(thread)};
    return ordered;
  }

  // Words are numbered as they are met. The bytes up to the n-th, which is all a checkpoint needs, and the state of
  // words that were first met after it.
  static size_t bytes_used(uint32_t n_words) { return sizeof(HappensBefore) - sizeof(Word) * (kMaxWords - n_words); }
  void forget_words(uint32_t from, uint32_t to) { std::memset(&words_[from], 0, sizeof(Word) * (to - from)); }

  bool overflowed() const {
    for (uint32_t t = 0; t < kMaxThreads; t++)
      if (threads_[t].at[t] >= kMaxEpochs) return true;
    return false;
  }

  // Calls add(bytes) with what can still tell an ordered access from a race; equal values, equal futures.
  // What counts are comparisons of clocks with the epochs of past accesses. So clocks are replaced by the number of
  // such epochs they cover, and accesses that every running thread is ordered after no longer count at all.
  // (A thread's own clock covers all its epochs, and its next access is in one that nobody else has seen.)
  template <class Add>
  void fingerprint(uint32_t n_words, const bool* running, Add&& add) const {
    Epochs epochs[kMaxThreads];
    for (uint32_t t = 0; t < kMaxThreads; t++) epochs[t] = live_epochs(t, n_words, running);
    for (uint32_t t = 0; t < kMaxThreads; t++)
      if (running[t]) add(ranks(threads_[t], epochs, t));
    for (uint32_t w = 0; w < n_words; w++) {
      uint32_t write = epochs[words_[w].writer].rank_of_access(words_[w].write_epoch);
      uint64_t clocks = uint64_t{ranks(words_[w].released, epochs, kMaxThreads)} << 32 |
                        ranks_of_accesses(words_[w].readers, epochs);
      if (clocks != 0 || write != 0) {
        add(uint64_t{w} << 16 | uint64_t{words_[w].writer} << 8 | write);
        add(clocks);
      }
    }
  }

 private:
  static constexpr uint8_t kMaxEpochs = 63;

  struct Word {
    VectorClock released;  // atomic words: what an acquire of the present value is ordered after
    VectorClock readers;   // plain words: the epoch in which each thread last read it since the last write
    uint8_t writer;
    uint8_t write_epoch;   // 0: never written
  };

  // Epochs of one thread in which it touched plain words in a way that can still race.
  struct Epochs {
    uint64_t live = 0;
    uint32_t rank(uint8_t clock) const {
      uint64_t covered = live & ((uint64_t{2} << clock) - 1);
      return covered == 0 ? 0 : static_cast<uint32_t>(__builtin_popcountll(covered));
    }
    uint32_t rank_of_access(uint8_t epoch) const { return live >> epoch & 1 ? rank(epoch) : 0; }
  };

  Epochs live_epochs(uint32_t thread, uint32_t n_words, const bool* running) const {
    uint8_t known = kMaxEpochs;  // to every other running thread
    for (uint32_t t = 0; t < kMaxThreads; t++)
      if (t != thread && running[t] && threads_[t].at[thread] < known) known = threads_[t].at[thread];
    Epochs epochs;
    for (uint32_t w = 0; w < n_words; w++) {
      if (words_[w].writer == thread) epochs.live |= uint64_t{1} << words_[w].write_epoch;
      epochs.live |= uint64_t{1} << words_[w].readers.at[thread];
    }
    epochs.live &= ~((uint64_t{2} << known) - 1);
    return epochs;
  }

  static uint32_t ranks(const VectorClock& clock, const Epochs* epochs, uint32_t owner) {
    uint32_t packed = 0;
    for (uint32_t t = 0; t < kMaxThreads; t++)
      if (t != owner) packed |= epochs[t].rank(clock.at[t]) << 8 * t;
    return packed;
  }
  static uint32_t ranks_of_accesses(const VectorClock& clock, const Epochs* epochs) {
    uint32_t packed = 0;
    for (uint32_t t = 0; t < kMaxThreads; t++) packed |= epochs[t].rank_of_access(clock.at[t]) << 8 * t;
    return packed;
  }

  bool ordered_after_write(uint32_t thread, const Word& data) const {
    return data.writer == thread || data.write_epoch <= threads_[thread].at[data.writer];
  }

  uint8_t epoch_of_access(uint32_t thread) {
    if (released_[thread]) threads_[thread].at[thread]++;
    released_[thread] = false;
    return threads_[thread].at[thread];
  }

  void release(uint32_t thread, uint32_t word) {
    words_[word].released.join(threads_[thread]);
    released_[thread] = true;
  }

  VectorClock threads_[kMaxThreads];
  bool released_[kMaxThreads];  // since the epoch began
  Word words_[kMaxWords];
};

}  // namespace explorer
