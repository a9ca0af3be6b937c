#include "bam/nvme_drive.h"

#include <cerrno>
#include <cstring>

namespace bam {

NvmeDrive::NvmeDrive(const DriveConfig& config, std::shared_ptr<DmaSpace> space)
    : space_(std::move(space)),
      config_(config),
      queues_(std::vector<QueuePairState>(config.pairs, config.pairs + config.n_pairs)),
      depth_(config.pairs[0].depth),
      list_bytes_(prp_list_bytes(config.slot_bytes, config.page_bytes)),
      by_slot_(size_t{config.n_pairs} * depth_) {
  config_.pairs = nullptr;
}

BatchOutcome NvmeDrive::transfer(const DriveTransfers& transfers) {
  // By value: commands may outlive the call.
  auto piece = [this, transfers](uint64_t i, uint64_t slba) {
    return Piece{transfers.memory + i * transfers.stride, slba, transfers.n_blocks * transfers.block_bytes,
                 transfers.n_blocks, transfers.block_bytes, transfers.nsid, static_cast<Opcode>(transfers.opcode)};
  };
  BatchPlan plan{transfers.count, queues_.next_pair(), config_.n_pairs, config_.timeout_ms,
                 [&](uint64_t i, uint32_t pair, uint16_t cid) {
                   return encode(piece(i, transfers.slbas[i]), pair, cid);
                 }};
  plan.deliver = [this, piece](uint64_t i, uint32_t pair, uint16_t cid) { deliver(piece(i, 0), pair, cid); };
  plan.recover = [this](uint64_t epoch) { recover(epoch); };
  return queues_.run_batch(plan);
}

// Whole blocks only: a last block that is wanted in part would overrun the destination.
bool NvmeDrive::straight(const Piece& piece, uint64_t* iova) const {
  return piece.bytes == piece.n_blocks * piece.block_bytes && reinterpret_cast<uint64_t>(piece.memory) % 4 == 0 &&
         space_->translate(piece.memory, piece.bytes, iova);
}

Sqe NvmeDrive::encode(const Piece& piece, uint32_t pair, uint16_t cid) {
  uint64_t address = 0;
  bool by_slot = !straight(piece, &address);
  by_slot_[slot_number(pair, cid)] = by_slot;
  if (by_slot) {
    address = config_.slots_iova + slot_number(pair, cid) * config_.slot_bytes;
    if (piece.opcode == Opcode::write) std::memcpy(slot(pair, cid), piece.memory, piece.bytes);
  }
  uint64_t bytes = uint64_t{piece.n_blocks} * piece.block_bytes;
  size_t list = slot_number(pair, cid) * list_bytes_;
  DataPointer data = config_.use_sgl != 0
                         ? sgl_pointer(address, bytes)
                         : prp_pointer(address, bytes, config_.page_bytes, config_.lists + list / kPrpEntryBytes,
                                       config_.lists_iova + list);
  return transfer_command(piece.opcode, cid, piece.nsid, piece.slba, piece.n_blocks, data);
}

void NvmeDrive::deliver(const Piece& piece, uint32_t pair, uint16_t cid) {
  if (piece.opcode == Opcode::read && by_slot_[slot_number(pair, cid)])
    std::memcpy(piece.memory, slot(pair, cid), piece.bytes);
}

int errno_of(const Completion& completion) {
  uint16_t status = status_of(completion.status);
  bool ours = status == static_cast<uint16_t>(Status::abort_requested) && completion.dw0 != 0;
  return ours ? static_cast<int>(completion.dw0) : errno_of_status(status);
}

}  // namespace bam
