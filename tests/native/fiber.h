// A thread of the model: runs on its own stack until it suspends itself, and can be put back to an earlier moment.
//
// What a suspended fiber will do next depends on nothing but shared memory and the live part of its stack:
// suspend() first spills every register a callee must keep. So those bytes are the fiber's local state. Copying them
// away and back (at the same addresses) is a checkpoint, and two equal copies mean the same future.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace explorer {

class Fiber {
 public:
  using Body = void (*)(void* argument);

  // What a checkpoint must keep besides the stack bytes.
  struct Position {
    jmp_buf context;
    uint8_t* live;  // lowest byte of the stack that can still matter
    bool finished;
  };

  // Makes the fiber ready; the first resume() enters body(argument).
  void start(Body body, void* argument) {
    body_ = body;
    argument_ = argument;
    position = {};
    entered_ = false;
    std::memset(stack_, 0, kStackBytes);
  }

  // Runs the fiber until it suspends or finishes.
  void resume() {
    running() = this;
    if (_setjmp(scheduler()) != 0) return;
    if (entered_) {
      std::memset(position.live - kSlackBytes - kScrubBytes, 0, kScrubBytes);  // as scrub() does
      _longjmp(position.context, 1);
    }
    entered_ = true;
    getcontext(&start_);
    start_.uc_stack.ss_sp = stack_;
    start_.uc_stack.ss_size = kStackBytes;
    start_.uc_link = nullptr;
    makecontext(&start_, &Fiber::enter, 0);
    setcontext(&start_);
  }

  // Called on a fiber: gives control back to whoever resumed it.
  static __attribute__((noinline)) void suspend() {
    __builtin_unwind_init();  // registers that callees must keep: now part of this frame
    switch_out();
    asm volatile("" ::: "memory");
  }

  // Called on a fiber: clears the stack below the caller. What calls leave there would end up in gaps of later frames
  // and make equal states look different; that costs time, not correctness.
  static __attribute__((noinline)) void scrub() {
    uint8_t dead[kScrubBytes];
    std::memset(dead, 0, sizeof dead);
    asm volatile("" : : "r"(dead) : "memory");
  }

  // Bytes that are the local state, and bytes a checkpoint keeps (some more: the frame that switches).
  const uint8_t* state_begin() const { return position.live; }
  uint8_t* kept_begin() const { return position.live - kSlackBytes; }
  size_t state_bytes() const { return static_cast<size_t>(stack_ + kStackBytes - position.live); }
  size_t kept_bytes() const { return state_bytes() + kSlackBytes; }

  Position position{};

 private:
  static constexpr size_t kStackBytes = 64 * 1024;
  static constexpr size_t kSlackBytes = 128;
  static constexpr size_t kScrubBytes = 1024;

  static Fiber*& running() {
    static Fiber* fiber = nullptr;
    return fiber;
  }
  static jmp_buf& scheduler() {
    static jmp_buf context;
    return context;
  }

  static void enter() {
    Fiber* self = running();
    self->body_(self->argument_);
    self->position.finished = true;
    self->position.live = self->stack_ + kStackBytes;  // nothing left that matters
    _longjmp(scheduler(), 1);
  }

  static __attribute__((noinline)) void switch_out() {
    Fiber* self = running();
    self->position.live = static_cast<uint8_t*>(__builtin_frame_address(0));
    if (_setjmp(self->position.context) == 0) _longjmp(scheduler(), 1);
  }

  Body body_ = nullptr;
  void* argument_ = nullptr;
  bool entered_ = false;
  ucontext_t start_{};
  alignas(64) uint8_t stack_[kStackBytes];
};

}  // namespace explorer
