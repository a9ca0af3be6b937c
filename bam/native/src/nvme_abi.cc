// C ABI of DMA spaces, drives and the engine that reads them. Handles of spaces and drives hold one reference each;
// whatever was made from them keeps the objects alive.
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "bam/nvme_drive.h"
#include "engine_registry.h"
#include "failure.h"
#include "guard.h"
#include "nvme_engine.h"

namespace {

using Space = std::shared_ptr<bam::DmaSpace>;
using Drive = std::shared_ptr<bam::NvmeDrive>;

Space& space_of(void* handle) { return *static_cast<Space*>(handle); }
Drive& drive_of(void* handle) { return *static_cast<Drive*>(handle); }

bam::Completion lost(int32_t error) {
  return {0, bam::status_field(bam::Status::abort_requested), static_cast<uint32_t>(error), 0};
}

}  // namespace

extern "C" {

// `kind` as DmaKind.
void* bam_dma_create(uint32_t kind, int32_t fd, uint32_t ioas, const bam::DmaRange* ranges, uint32_t n_ranges) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    std::vector<bam::DmaRange> listed(ranges, ranges + n_ranges);
    return new Space(std::make_shared<bam::DmaSpace>(static_cast<bam::DmaKind>(kind), fd, ioas, std::move(listed)));
  });
}

void bam_dma_destroy(void* handle) { delete &space_of(handle); }

// Null and an errno in `error`.
uint8_t* bam_dma_allocate(void* handle, uint64_t bytes, uint64_t* iova, int32_t* error) {
  return bam::guarded(static_cast<uint8_t*>(nullptr),
                      [&] { return space_of(handle)->allocate(bytes, iova, error); });
}

// The ioctl that would map (or unmap), for tests: its number, and its argument in `argument`. Returns the bytes of it.
uint32_t bam_dma_encode(uint32_t kind, int32_t unmap, uint32_t ioas, uint64_t address, uint64_t bytes, uint64_t iova,
                        uint64_t* number, uint8_t* argument) {
  return bam::guarded(uint32_t{0}, [&] {
    auto chosen = static_cast<bam::DmaKind>(kind);
    bam::DmaRequest request = unmap != 0 ? bam::encode_unmap(chosen, ioas, bytes, iova)
                                         : bam::encode_map(chosen, ioas, address, bytes, iova);
    *number = request.number;
    std::memcpy(argument, request.argument.data(), request.argument.size());
    return static_cast<uint32_t>(request.argument.size());
  });
}

// Queue pairs whose entries and doorbells lie where `pairs` says.
void* bam_queues_create_at(const bam::QueuePairState* pairs, uint32_t n_pairs) {
  if (n_pairs == 0 || !bam::valid_depth(pairs[0].depth)) return nullptr;
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    return new bam::HostQueues(std::vector<bam::QueuePairState>(pairs, pairs + n_pairs));
  });
}

void bam_queues_pause(void* handle) { static_cast<bam::HostQueues*>(handle)->pause(); }
void bam_queues_resume(void* handle) { static_cast<bam::HostQueues*>(handle)->resume(); }
// What was outstanding ends with this errno.
void bam_queues_restart(void* handle, int32_t error) { static_cast<bam::HostQueues*>(handle)->restart(lost(error)); }
void bam_queues_abandon(void* handle, int32_t error) { static_cast<bam::HostQueues*>(handle)->abandon(lost(error)); }
uint64_t bam_queues_epoch(void* handle) { return static_cast<bam::HostQueues*>(handle)->epoch(); }
void bam_queues_drain(void* handle) {
  auto* queues = static_cast<bam::HostQueues*>(handle);
  for (uint32_t pair = 0; pair < queues->pairs().size(); pair++) queues->drain(pair);
}

// While paused: the commands that have not completed; returns how many there are.
uint32_t bam_queues_outstanding(void* handle, bam::OutstandingCommand* commands, uint32_t capacity) {
  return bam::guarded(uint32_t{0}, [&] {
    std::vector<bam::OutstandingCommand> found = static_cast<bam::HostQueues*>(handle)->outstanding_commands();
    for (uint32_t i = 0; i < found.size() && i < capacity; i++) commands[i] = found[i];
    return static_cast<uint32_t>(found.size());
  });
}

void* bam_drive_create(void* space, const bam::DriveConfig* config) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    return new Drive(std::make_shared<bam::NvmeDrive>(*config, space_of(space)));
  });
}

void bam_drive_destroy(void* handle) { delete &drive_of(handle); }

// Belongs to the drive; for the functions that take queue pairs.
void* bam_drive_queues(void* handle) { return &drive_of(handle)->queues(); }

void bam_drive_transfer(void* handle, const bam::DriveTransfers* transfers, bam::BatchOutcome* outcome) {
  bam::guarded(0, [&] {
    Drive drive = drive_of(handle);
    *outcome = drive->transfer(*transfers);
    return 0;
  });
}

// errno of a failed command: `status` of its completion, and dw0.
int32_t bam_drive_errno(uint16_t status_field, uint32_t dw0) { return bam::errno_of({0, status_field, dw0, 0}); }

void* bam_drive_engine_create(void* drive, const bam::DriveFile* files, uint32_t n_files, char* error,
                              size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    auto engine = std::make_shared<bam::NvmeEngine>(drive_of(drive), files, n_files);
    return bam::handle_or_failure(std::move(engine), {}, error, capacity);
  });
}

}  // extern "C"
