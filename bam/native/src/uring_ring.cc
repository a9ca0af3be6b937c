#include "uring_ring.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

// Headers older than the kernel the library will run on lack these (values: io_uring's ABI).
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_TASKRUN_FLAG
#define IORING_SETUP_TASKRUN_FLAG (1U << 9)
#endif
#ifndef IORING_SQ_TASKRUN
#define IORING_SQ_TASKRUN (1U << 2)
#endif
#ifndef IORING_FEAT_EXT_ARG
#define IORING_FEAT_EXT_ARG (1U << 8)
#endif
#ifndef IORING_ENTER_EXT_ARG
#define IORING_ENTER_EXT_ARG (1U << 3)
#endif

namespace bam {
namespace {

// struct io_uring_getevents_arg and struct __kernel_timespec, which older headers lack.
struct WaitArgument {
  uint64_t signal_mask;
  uint32_t signal_mask_bytes;
  uint32_t reserved;
  uint64_t timeout;
};
struct WaitTimeout {
  int64_t seconds;
  int64_t nanoseconds;
};
constexpr uint32_t kSignalMaskBytes = 8;

int setup(uint32_t entries, io_uring_params* params) {
  return static_cast<int>(syscall(__NR_io_uring_setup, entries, params));
}

unsigned* at(void* memory, uint32_t offset) {
  return reinterpret_cast<unsigned*>(static_cast<char*>(memory) + offset);
}

// acquire: pairs with the kernel's release store of the same word
unsigned load_acquire(unsigned* word) { return std::atomic_ref<unsigned>(*word).load(std::memory_order_acquire); }
// release: pairs with the kernel's acquire load of the same word
void store_release(unsigned* word, unsigned value) {
  std::atomic_ref<unsigned>(*word).store(value, std::memory_order_release);
}

// A forked child must not share the rings: its copies of the indices would be the parent's memory.
void* map_ring(int descriptor, size_t bytes, uint64_t offset) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor,
                      static_cast<off_t>(offset));
  if (memory == MAP_FAILED) return nullptr;
  madvise(memory, bytes, MADV_DONTFORK);
  return memory;
}

bool try_again_later(int error) { return error == EINTR || error == EAGAIN || error == EBUSY || error == ETIME; }

}  // namespace

int Ring::open(uint32_t entries, UringFeatures* features) {
  io_uring_params params{};
  if (features->coop_taskrun) {
    params.flags = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    descriptor_ = setup(entries, &params);
    features->coop_taskrun = task_run_flag_ = descriptor_ >= 0;
  }
  if (descriptor_ < 0) {
    params = {};
    descriptor_ = setup(entries, &params);
  }
  if (descriptor_ < 0) return errno;
  entries_ = params.sq_entries;
  features->timed_wait = timed_wait_ = features->timed_wait && (params.features & IORING_FEAT_EXT_ARG);
  features->single_mmap = features->single_mmap && (params.features & IORING_FEAT_SINGLE_MMAP);
  features->no_drop = (params.features & IORING_FEAT_NODROP) != 0;
  if (!features->single_mmap) params.features &= ~IORING_FEAT_SINGLE_MMAP;
  return map_rings(params);
}

int Ring::map_rings(const io_uring_params& params) {
  sq_bytes_ = params.sq_off.array + params.sq_entries * sizeof(unsigned);
  cq_bytes_ = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
  entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
  bool single = (params.features & IORING_FEAT_SINGLE_MMAP) != 0;
  if (single) sq_bytes_ = std::max(sq_bytes_, cq_bytes_);
  sq_memory_ = map_ring(descriptor_, sq_bytes_, IORING_OFF_SQ_RING);
  if (!single) cq_memory_ = map_ring(descriptor_, cq_bytes_, IORING_OFF_CQ_RING);
  entries_memory_ = static_cast<io_uring_sqe*>(map_ring(descriptor_, entries_bytes_, IORING_OFF_SQES));
  if (sq_memory_ == nullptr || entries_memory_ == nullptr || (!single && cq_memory_ == nullptr)) return ENOMEM;
  void* cq = single ? sq_memory_ : cq_memory_;
  sq_head_ = at(sq_memory_, params.sq_off.head);
  sq_tail_ = at(sq_memory_, params.sq_off.tail);
  sq_flags_ = at(sq_memory_, params.sq_off.flags);
  sq_mask_ = *at(sq_memory_, params.sq_off.ring_mask);
  cq_head_ = at(cq, params.cq_off.head);
  cq_tail_ = at(cq, params.cq_off.tail);
  cq_mask_ = *at(cq, params.cq_off.ring_mask);
  cqes_ = reinterpret_cast<io_uring_cqe*>(at(cq, params.cq_off.cqes));
  unsigned* order = at(sq_memory_, params.sq_off.array);
  for (uint32_t i = 0; i < params.sq_entries; i++) order[i] = i;  // entries are used in turn
  tail_ = *sq_tail_;
  return 0;
}

Ring::~Ring() {
  if (descriptor_ < 0) return;
  if (sq_memory_ != nullptr) munmap(sq_memory_, sq_bytes_);
  if (cq_memory_ != nullptr) munmap(cq_memory_, cq_bytes_);
  if (entries_memory_ != nullptr) munmap(entries_memory_, entries_bytes_);
  ::close(descriptor_);
}

io_uring_sqe* Ring::next_entry() {
  io_uring_sqe* entry = &entries_memory_[tail_++ & sq_mask_];
  std::memset(entry, 0, sizeof *entry);
  return entry;
}

void Ring::publish() { store_release(sq_tail_, tail_); }

uint32_t Ring::unsubmitted() const { return tail_ - load_acquire(sq_head_); }

io_uring_sqe* Ring::take_back() {
  if (unsubmitted() == 0) return nullptr;
  tail_--;
  publish();
  return &entries_memory_[tail_ & sq_mask_];
}

int Ring::enter(uint32_t wait_us) {
  uint32_t to_submit = unsubmitted();
  int error = 0;
  if (wait_us > 0 && timed_wait_) error = enter_timed(to_submit, wait_us);
  else error = enter_then_poll(to_submit, wait_us);
  // No memory for requests, completions to be taken first, or a broken ring whose reads still complete (its memory
  // stays mapped): give way, the caller comes back.
  bool waited = error == 0 || error == ETIME || error == EINTR;
  if (!waited && wait_us > 0) usleep(std::min<uint32_t>(wait_us, 50));
  return try_again_later(error) ? 0 : error;
}

int Ring::enter_timed(uint32_t to_submit, uint32_t wait_us) {
  WaitTimeout timeout{wait_us / 1'000'000, int64_t{wait_us % 1'000'000} * 1000};
  WaitArgument argument{0, kSignalMaskBytes, 0, reinterpret_cast<uint64_t>(&timeout)};
  long done = syscall(__NR_io_uring_enter, descriptor_, to_submit, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG,
                      &argument, sizeof argument);
  return done < 0 ? errno : 0;
}

// Before Linux 5.11 a wait has no time-out of its own; the ring's descriptor can be polled.
int Ring::enter_then_poll(uint32_t to_submit, uint32_t wait_us) {
  if (syscall(__NR_io_uring_enter, descriptor_, to_submit, 0, wait_us > 0 ? IORING_ENTER_GETEVENTS : 0, nullptr, 0) < 0)
    return errno;
  if (wait_us == 0 || front() != nullptr) return 0;
  pollfd ready{descriptor_, POLLIN, 0};
  timespec timeout{wait_us / 1'000'000, long{wait_us % 1'000'000} * 1000};
  return ppoll(&ready, 1, &timeout, nullptr) < 0 ? errno : 0;
}

bool Ring::has_task_work() const {
  return task_run_flag_ &&
         (std::atomic_ref<unsigned>(*sq_flags_).load(std::memory_order_relaxed) & IORING_SQ_TASKRUN) != 0;
}

const io_uring_cqe* Ring::front() const {
  unsigned head = *cq_head_;  // only we write it
  return head == load_acquire(cq_tail_) ? nullptr : &cqes_[head & cq_mask_];
}

void Ring::advance() { store_release(cq_head_, *cq_head_ + 1); }

int Ring::register_resource(unsigned opcode, const void* argument, unsigned count) {
  return syscall(__NR_io_uring_register, descriptor_, opcode, argument, count) < 0 ? errno : 0;
}

}  // namespace bam
