// The data path of an NVMe drive that this process owns: its I/O queue pairs and the memory it transfers to and from
// (host only). Who brings the drive up, resets it and shuts it down is Python (bam/storage/nvme).
//
// Each command id of each queue pair has a *slot*: memory of the longest transfer, and room for a PRP list. Bytes go
// straight to where they are wanted if the drive can reach it (DmaSpace::translate), else by way of the slot.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bam/data_pointer.h"
#include "bam/dma_space.h"
#include "bam/host_queues.h"

namespace bam {

struct DriveConfig {
  const QueuePairState* pairs;  // entries and doorbells; used while the drive is made
  uint8_t* slots;               // n_pairs * depth slots of slot_bytes
  uint64_t* lists;              // as many of prp_list_bytes(slot_bytes), from a page's beginning on
  uint64_t slots_iova;
  uint64_t lists_iova;
  uint32_t n_pairs;
  uint32_t slot_bytes;          // longest transfer; whole memory pages
  uint32_t page_bytes;          // of the drive: 2 ^ (12 + CC.MPS)
  uint32_t timeout_ms;
  uint32_t use_sgl;
  // Called by a thread whose commands are overdue, with no lock held: ends all commands outstanding in `epoch`.
  void (*recover)(uint64_t epoch);
};

// One command's worth of bytes, at most a slot.
struct Piece {
  uint8_t* memory;
  uint64_t slba;
  uint32_t bytes;     // of `memory`; less than n_blocks * block_bytes where the file ends within a block
  uint32_t n_blocks;
  uint32_t block_bytes;
  uint32_t nsid;
  Opcode opcode;
};

// `count` reads or writes of `n_blocks` each: number i at block slbas[i], from or to memory + i * stride.
struct DriveTransfers {
  const uint64_t* slbas;
  uint8_t* memory;
  uint64_t count;
  uint64_t stride;
  uint32_t n_blocks;
  uint32_t block_bytes;
  uint32_t nsid;
  uint32_t opcode;
};

class NvmeDrive {
 public:
  NvmeDrive(const DriveConfig& config, std::shared_ptr<DmaSpace> space);

  HostQueues& queues() { return queues_; }
  DmaSpace& space() { return *space_; }
  const DriveConfig& config() const { return config_; }

  BatchOutcome transfer(const DriveTransfers& transfers);

  // The entry of a command for `piece`; bytes to write are in place when it returns.
  Sqe encode(const Piece& piece, uint32_t pair, uint16_t cid);
  // After success, while the command id is still its own: bytes read are in place when it returns.
  void deliver(const Piece& piece, uint32_t pair, uint16_t cid);
  void recover(uint64_t epoch) { config_.recover(epoch); }

 private:
  bool straight(const Piece& piece, uint64_t* iova) const;
  size_t slot_number(uint32_t pair, uint16_t cid) const { return size_t{pair} * depth_ + cid; }
  uint8_t* slot(uint32_t pair, uint16_t cid) const {
    return config_.slots + slot_number(pair, cid) * config_.slot_bytes;
  }

  std::shared_ptr<DmaSpace> space_;
  DriveConfig config_;
  HostQueues queues_;
  uint32_t depth_;
  uint32_t list_bytes_;
  std::vector<uint8_t> by_slot_;  // by slot: whether its command uses it; written and read like queue_pair.h's cids
};

// errno of a completion that was not a success. One that was made here, because the drive was reset or is gone, has
// it in dw0.
int errno_of(const Completion& completion);

}  // namespace bam
