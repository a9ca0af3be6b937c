// One io_uring by raw system calls (io_uring_setup(2), io_uring_enter(2), io_uring_register(2)).
#pragma once

#include <linux/io_uring.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace bam {

// What may be used; probed once per engine.
struct UringFeatures {
  bool fixed_files = true;     // registered files
  bool fixed_buffers = true;   // registered buffers
  bool timed_wait = true;      // time-outs passed to io_uring_enter (IORING_FEAT_EXT_ARG)
  bool single_mmap = true;     // both rings in one mapping (IORING_FEAT_SINGLE_MMAP)
  bool no_drop = true;         // completions are never dropped (IORING_FEAT_NODROP)
  bool coop_taskrun = true;    // completions without interrupting the submitting thread (IORING_SETUP_COOP_TASKRUN)
};

class Ring {
 public:
  Ring() = default;
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // 0 or an errno. `features` says what may be tried and comes back with what was got.
  int open(uint32_t entries, UringFeatures* features);
  // In a forked child: leaves the parent's ring alone.
  void abandon() { descriptor_ = -1; }

  uint32_t entries() const { return entries_; }
  // Next free submission entry, zeroed. The caller never has more reads in flight than `entries`.
  io_uring_sqe* next_entry();
  // Makes the entries filled so far visible to the kernel; the next enter() submits them.
  void publish();
  uint32_t unsubmitted() const;
  // Takes back the entries not submitted, newest first; null when there is none.
  io_uring_sqe* take_back();
  // Submits and, when `wait_us` > 0, waits at most that long for one completion. 0 or an errno; nothing in time,
  // EINTR, and EAGAIN and EBUSY (try again later) count as 0.
  int enter(uint32_t wait_us);
  // Whether completions wait for this thread to enter the kernel.
  bool has_task_work() const;
  // Next completion, or null; valid until advance().
  const io_uring_cqe* front() const;
  void advance();
  // 0 or an errno.
  int register_resource(unsigned opcode, const void* argument, unsigned count);

 private:
  int map_rings(const io_uring_params& params);
  int enter_timed(uint32_t to_submit, uint32_t wait_us);
  int enter_then_poll(uint32_t to_submit, uint32_t wait_us);

  int descriptor_ = -1;
  uint32_t entries_ = 0;
  bool timed_wait_ = false;
  bool task_run_flag_ = false;
  uint32_t tail_ = 0;  // entries handed out by next_entry()
  void* sq_memory_ = nullptr;
  void* cq_memory_ = nullptr;  // null when it lies in sq_memory_
  io_uring_sqe* entries_memory_ = nullptr;
  size_t sq_bytes_ = 0, cq_bytes_ = 0, entries_bytes_ = 0;
  unsigned *sq_head_ = nullptr, *sq_tail_ = nullptr, *sq_flags_ = nullptr;
  unsigned *cq_head_ = nullptr, *cq_tail_ = nullptr;
  unsigned sq_mask_ = 0, cq_mask_ = 0;
  io_uring_cqe* cqes_ = nullptr;
};

// Finds what this kernel lets us use; 0 or the errno of the refusal. Only features already set in `features` are
// tried. ENOTSUP: the kernel is too old (no IORING_OP_READ: before Linux 5.6).
int probe_uring(const int* descriptors, uint32_t count, UringFeatures* features);

// Why io_uring was refused, and what to do about it, in words.
std::string refusal_reason(int error);
std::string refusal_remedy(int error);

}  // namespace bam
