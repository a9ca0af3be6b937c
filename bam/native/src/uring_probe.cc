// What this kernel lets us use of io_uring, and why not.
#include <sys/mman.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "uring_ring.h"

namespace bam {
namespace {

constexpr const char* kDisableVariable = "BAM_DISABLE_URING";

bool disabled_by_user() {
  const char* value = std::getenv(kDisableVariable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

int disabled_by_system() {
  std::ifstream setting("/proc/sys/kernel/io_uring_disabled");
  int value = 0;
  return setting >> value ? value : 0;
}

bool forbidden(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

// 0 or an errno; a sandbox may allow io_uring_setup alone. IORING_REGISTER_PROBE came with IORING_OP_READ, in Linux 5.6.
int find_read(Ring& ring) {
  constexpr unsigned kOperations = 64;
  std::vector<char> memory(sizeof(io_uring_probe) + kOperations * sizeof(io_uring_probe_op));
  auto* probe = reinterpret_cast<io_uring_probe*>(memory.data());
  int error = ring.register_resource(IORING_REGISTER_PROBE, probe, kOperations);
  if (error != 0) return forbidden(error) ? error : ENOTSUP;
  bool supported = probe->last_op >= IORING_OP_READ && (probe->ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED);
  return supported ? 0 : ENOTSUP;
}

// The same of io_uring_enter: submits an operation that does nothing.
int try_entering(Ring& ring) {
  ring.next_entry()->opcode = IORING_OP_NOP;
  ring.publish();
  int error = ring.enter(0);
  while (ring.front() != nullptr) ring.advance();
  return error;
}

bool has_fixed_buffers(Ring& ring) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  iovec buffer{page, 4096};
  bool works = ring.register_resource(IORING_REGISTER_BUFFERS, &buffer, 1) == 0 &&
               ring.register_resource(IORING_UNREGISTER_BUFFERS, nullptr, 0) == 0;
  munmap(page, 4096);
  return works;
}

}  // namespace

int probe_uring(const int* descriptors, uint32_t count, UringFeatures* features) {
  if (disabled_by_user()) return ECANCELED;
  Ring ring;
  int error = ring.open(2, features);
  if (error != 0) return error;
  error = find_read(ring);
  if (error == 0) error = try_entering(ring);
  if (error != 0) return error;
  if (features->fixed_files)
    features->fixed_files = ring.register_resource(IORING_REGISTER_FILES, descriptors, count) == 0;
  if (features->fixed_buffers) features->fixed_buffers = has_fixed_buffers(ring);
  return 0;
}

std::string refusal_reason(int error) {
  if (error == ECANCELED) return std::string("the environment variable ") + kDisableVariable + " is set";
  if (error == ENOTSUP) return "this kernel's io_uring has no plain reads (it is older than Linux 5.6)";
  std::string said = std::string("io_uring was refused: ") + std::strerror(error);
  if (error == ENOSYS) return said + "; the kernel has no io_uring, or a sandbox hides it";
  if (error == EPERM && disabled_by_system() == 2) return said + "; the sysctl kernel.io_uring_disabled is 2";
  if (error == EPERM && disabled_by_system() == 1)
    return said + "; the sysctl kernel.io_uring_disabled is 1 and this process is not in kernel.io_uring_group";
  if (error == EPERM || error == EACCES) return said + "; most likely a seccomp filter, as containers set by default";
  if (error == ENOMEM) return said + "; the limit on locked memory (ulimit -l) or the memory cgroup is too small";
  if (error == EMFILE || error == ENFILE) return said + "; too many open files";
  return said;
}

std::string refusal_remedy(int error) {
  const char* other = "use engine 'file' (or 'auto', which chooses it)";
  if (error == ECANCELED) return std::string("Unset it, or ") + other;
  if (error == ENOTSUP) return std::string("Run Linux 5.6 or newer, or ") + other;
  if (error == EPERM && disabled_by_system() != 0)
    return std::string("Set it to 0 (sysctl -w kernel.io_uring_disabled=0), or ") + other;
  if (error == ENOSYS || error == EPERM || error == EACCES)
    return std::string("Allow io_uring in the sandbox (docker run --security-opt seccomp=PROFILE with the io_uring "
                       "calls allowed), or ") + other;
  if (error == ENOMEM) return std::string("Raise ulimit -l or the cgroup's memory limit, or ") + other;
  if (error == EMFILE || error == ENFILE) return std::string("Raise ulimit -n, or ") + other;
  return std::string("Otherwise ") + other;
}

}  // namespace bam
