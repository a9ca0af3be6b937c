#include "locked_memory.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace bam {
namespace {

std::atomic<size_t> taken{0};

// CAP_IPC_LOCK: the limit does not apply.
bool may_lock_anything() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
  return syscall(SYS_capget, &header, sets) == 0 && (sets[0].effective & (1u << CAP_IPC_LOCK)) != 0;
}

size_t budget() {
  rlimit limit{};
  if (may_lock_anything() || getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur / 2;
}

}  // namespace

bool take_locked(size_t bytes) {
  size_t most = budget();
  size_t before = taken.load(std::memory_order_relaxed);
  do {
    if (bytes > most || before > most - bytes) return false;
  } while (!taken.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  return true;
}

void give_back_locked(size_t bytes) { taken.fetch_sub(bytes, std::memory_order_relaxed); }

}  // namespace bam
