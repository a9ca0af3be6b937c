#include "fork_guard.h"

#include <pthread.h>

#include <atomic>

#include "engine_registry.h"

namespace bam {
namespace {

std::atomic<uint32_t> generation{0};

void after_fork_in_child() {
  generation.fetch_add(1, std::memory_order_relaxed);  // the child has one thread
  forget_engines_after_fork();
}

// pthread_atfork handlers stay for the life of the process; the library is never unloaded.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);

}  // namespace

uint32_t fork_generation() { return generation.load(std::memory_order_relaxed); }

}  // namespace bam
