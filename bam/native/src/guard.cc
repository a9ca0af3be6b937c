#include "guard.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

namespace bam {
namespace {

// Without memory of its own: there may be none.
struct Failure {
  int32_t code = 0;
  char text[200] = "";
};

thread_local Failure failure;

void keep(int32_t code, const char* text) noexcept {
  failure.code = code;
  std::strncpy(failure.text, text, sizeof failure.text - 1);
}

}  // namespace

void keep_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    keep(ENOMEM, "no memory");
  } catch (const std::length_error&) {
    keep(ENOMEM, "more memory than can be addressed");
  } catch (const std::exception& error) {
    keep(EIO, error.what());
  } catch (...) {
    keep(EIO, "an unknown exception");
  }
}

}  // namespace bam

extern "C" {

// 0, or why the calling thread's last call failed, once: ENOMEM, or EIO for any other exception.
int32_t bam_take_failure() { return std::exchange(bam::failure.code, 0); }

// In words; until the thread's next failure.
const char* bam_failure_text() { return bam::failure.text; }

}  // extern "C"
