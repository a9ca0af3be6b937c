// The life of one cache line, in one 64-bit word: which page it holds, how far that page is, who uses it.
//
//   bits 63..22  page id (42 bits)
//   bits 21..2   pins    (20 bits): holders of the line; a pinned line is never evicted
//   bits  1..0   state   empty -> reading -> valid, or reading -> failed
//
// Page, pins and state change in one atomic step, so there is no moment in which a line is taken but its
// page is not, and no busy bit that a second atomic could leave behind.
//
//   claim    (empty | valid | failed, pins 0)  -> (new page, pins 1, reading)   the claimer reads the page
//   pin      (page, reading | valid)           -> pins + 1                      a hit, or a join of the read
//   publish  reading -> valid                  by the claimer, when the bytes are in the line
//   fail     reading -> failed                 by the claimer, when they are not
//   unpin    pins - 1                          by every holder, the claimer too
//
// A failed line is never found again; it is free once its last holder has gone.
#pragma once

#include "bam/platform.h"

namespace bam {

using LineWord = uint64_t;

enum class LineState : uint32_t { empty = 0, reading = 1, valid = 2, failed = 3 };

constexpr uint32_t kStateBits = 2;
constexpr uint32_t kPinBits = 20;
constexpr LineWord kOnePin = LineWord{1} << kStateBits;
constexpr uint64_t kMaxPins = (uint64_t{1} << kPinBits) - 1;
constexpr uint64_t kMaxPageId = (uint64_t{1} << (64 - kStateBits - kPinBits)) - 1;

BAM_HD constexpr LineState state_of(LineWord word) { return static_cast<LineState>(word & 3u); }
BAM_HD constexpr uint64_t pins_of(LineWord word) { return (word >> kStateBits) & kMaxPins; }
BAM_HD constexpr uint64_t page_of(LineWord word) { return word >> (kStateBits + kPinBits); }
BAM_HD constexpr LineWord make_line(uint64_t page_id, uint64_t pins, LineState state) {
  return (page_id << (kStateBits + kPinBits)) | (pins << kStateBits) | static_cast<LineWord>(state);
}

// True when a look-up for `page_id` may stop at this line.
BAM_HD constexpr bool holds(LineWord word, uint64_t page_id) {
  LineState state = state_of(word);
  return page_of(word) == page_id && (state == LineState::reading || state == LineState::valid);
}

// The same by a key that was made once, for those who look at many lines.
BAM_HD constexpr LineWord key_of(uint64_t page_id) { return make_line(page_id, 0, LineState::empty); }
BAM_HD constexpr bool has_key(LineWord word, LineWord key) {
  return page_of(word ^ key) == 0 && ((static_cast<uint32_t>(word) + 1) & 2) != 0;  // 1: reading, 2: valid
}
static_assert(has_key(make_line(5, 3, LineState::reading), key_of(5)));
static_assert(has_key(make_line(5, 0, LineState::valid), key_of(5)));
static_assert(has_key(make_line(kMaxPageId, kMaxPins, LineState::valid), key_of(kMaxPageId)));
static_assert(!has_key(make_line(5, 3, LineState::failed), key_of(5)));
static_assert(!has_key(make_line(4, 0, LineState::valid), key_of(5)));
static_assert(!has_key(0, key_of(0)));

// True when the line may be given to another page.
BAM_HD constexpr bool claimable(LineWord word) { return pins_of(word) == 0 && state_of(word) != LineState::reading; }

enum class PinResult : uint32_t { absent, valid, reading, saturated };

// Pins the line if it holds `page_id`. `valid`: the bytes are there. `reading`: somebody is reading them.
// `saturated`: the pin counter is full; the caller must do without the line.
template <class P>
BAM_HD PinResult try_pin(LineWord& line, uint64_t page_id) {
  typename P::template Atomic<LineWord> word(line);
  // Most often nobody else has it pinned. A GPU tries that at once, for it waits for a look as long as for the swap.
  LineWord seen = P::kWritesAreCheap ? make_line(page_id, 0, LineState::valid) : word.load(P::relaxed);
  while (holds(seen, page_id)) {
    if (pins_of(seen) == kMaxPins) return PinResult::saturated;
    // acquire: pairs with the release in publish(), so a valid line's bytes are visible to the new holder
    if (word.compare_exchange_weak(seen, seen + kOnePin, P::acquire, P::relaxed))
      return state_of(seen) == LineState::valid ? PinResult::valid : PinResult::reading;
  }
  return PinResult::absent;
}

// Takes an unpinned line for `page_id`; the caller then holds one pin and must publish() or fail() it.
template <class P>
BAM_HD bool try_claim(LineWord& line, uint64_t page_id) {
  typename P::template Atomic<LineWord> word(line);
  LineWord seen = word.load(P::relaxed);
  while (claimable(seen)) {
    // acquire: pairs with the release in unpin(), so the last holder has finished with the old bytes
    if (word.compare_exchange_weak(seen, make_line(page_id, 1, LineState::reading), P::acquire, P::relaxed)) return true;
  }
  return false;
}

// The claimer's bytes are in the line. It still holds its pin.
template <class P>
BAM_HD void publish(LineWord& line) {
  // release: pairs with the acquires in try_pin() and await(), which let others read the bytes. reading + 1 = valid
  typename P::template Atomic<LineWord>(line).fetch_add(1, P::release);
}

// The claimer could not read the bytes. Whatever it noted about the reason is visible to those who joined.
template <class P>
BAM_HD void fail(LineWord& line) {
  // release: pairs with the acquire in await(). reading + 2 = failed
  typename P::template Atomic<LineWord>(line).fetch_add(2, P::release);
}

template <class P>
BAM_HD void unpin(LineWord& line) {
  // release: pairs with the acquire in try_claim(), so the next owner cannot overwrite bytes still being read
  typename P::template Atomic<LineWord>(line).fetch_sub(kOnePin, P::release);
}

// State of a line the caller has pinned while it was being read.
template <class P>
BAM_HD LineState await_once(LineWord& line) {
  // acquire: pairs with the release in publish() and fail()
  return state_of(typename P::template Atomic<LineWord>(line).load(P::acquire));
}

}  // namespace bam
