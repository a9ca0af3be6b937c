// No exception may cross the C ABI. Functions that can throw, which is whoever allocates, run their body in
// guarded(); bam/native/__init__.py asks after each call whether it failed and raises.
#pragma once

#include <utility>

namespace bam {

// Keeps what is being thrown for the calling thread, until bam_take_failure(). Only inside a catch clause.
void keep_exception() noexcept;

// What `body` returns, or `failed` when it throws.
template <class Result, class Body>
Result guarded(Result failed, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    keep_exception();
    return failed;
  }
}

}  // namespace bam
