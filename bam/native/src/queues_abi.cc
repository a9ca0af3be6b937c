// C ABI of host queues and the software controller; handles are the objects' addresses.
// Threads do not survive a fork: a forked child must not use them (bam/storage/handle.py).
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bam/host_queues.h"
#include "bam/software_controller.h"
#include "engine_registry.h"
#include "guard.h"

namespace {

bam::HostQueues& queues_of(void* handle) { return *static_cast<bam::HostQueues*>(handle); }
bam::SoftwareController& controller_of(void* handle) { return *static_cast<bam::SoftwareController*>(handle); }

}  // namespace

extern "C" {

// Null when `depth` is not a power of two from 2 to 32768, `n_pairs` is 0, or there is no memory.
void* bam_queues_create(uint32_t n_pairs, uint32_t depth) {
  if (n_pairs == 0 || !bam::valid_depth(depth)) return nullptr;
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* { return new bam::HostQueues(n_pairs, depth); });
}

void bam_queues_destroy(void* handle) { delete &queues_of(handle); }

// Where queue pair number `pair` lies; valid until the queues are destroyed.
void bam_queues_pair(void* handle, uint32_t pair, bam::QueuePairState* state) {
  *state = queues_of(handle).pairs()[pair];
}

void bam_queues_read(void* handle, const bam::BlockReads* reads, bam::BatchOutcome* outcome) {
  bam::guarded(0, [&] {
    *outcome = queues_of(handle).read(*reads);
    return 0;
  });
}

// `sqe`: 64 bytes at any address.
void bam_queues_command(void* handle, uint32_t pair, const uint8_t* sqe, uint32_t timeout_ms,
                        bam::BatchOutcome* outcome) {
  bam::Sqe command;
  std::memcpy(&command, sqe, sizeof command);
  bam::guarded(0, [&] {
    *outcome = queues_of(handle).command(pair, command, timeout_ms);
    return 0;
  });
}

void bam_queues_set_life(void* handle, uint32_t life) {
  queues_of(handle).set_life(static_cast<bam::QueueLife>(life));
}

void bam_queues_counters(void* handle, bam::QueueCounters* counters) { *counters = queues_of(handle).counters(); }

// Answers the queue pairs until bam_controller_stop(). Null and a reason in `error` when it cannot start.
void* bam_controller_create(const void* engine, const bam::Layout* layout, const bam::QueuePairState* pairs,
                            uint32_t n_pairs, const bam::ControllerConfig* config, char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    std::string reason = "the engine is closed";
    std::unique_ptr<bam::SoftwareController> controller;
    if (std::shared_ptr<bam::Engine> found = bam::find_engine(engine)) {
      controller = bam::SoftwareController::create(std::move(found), *layout, {pairs, pairs + n_pairs}, *config, &reason);
    }
    if (controller != nullptr) return controller.release();
    bam::copy_text(reason, error, capacity);
    return nullptr;
  });
}

void bam_controller_stop(void* handle) {
  controller_of(handle).stop();
}

void bam_controller_destroy(void* handle) {
  delete &controller_of(handle);
}

void bam_controller_counters(void* handle, bam::ControllerCounters* counters) {
  *counters = controller_of(handle).counters();
}

// False when error record `number` is not kept (any more).
int32_t bam_controller_error(void* handle, uint32_t number, bam::ErrorRecord* record) {
  return controller_of(handle).errors().find(number, record) ? 1 : 0;
}

}  // extern "C"
