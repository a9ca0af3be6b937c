// Status codes by name and by errno, and a C ABI that encodes the structures, for tests and for Python.
#include "bam/nvme.h"

#include <cerrno>
#include <cstring>

namespace bam {

Status status_of_errno(int error) {
  switch (error) {
    case 0: return Status::success;
    case EIO: return Status::unrecovered_read_error;
    case ENODATA: return Status::unwritten_block;        // the file ends before the block
    case ESTALE: return Status::invalid_namespace;       // the file is another one now
    case EACCES:
    case EPERM: return Status::access_denied;
    case EINVAL: return Status::invalid_field;
    case EFAULT: return Status::data_transfer_error;
    case ECANCELED: return Status::abort_requested;
    case EBUSY:
    case EAGAIN: return Status::namespace_not_ready;
    default: return Status::internal_error;
  }
}

const char* status_name(uint16_t status) {
  switch (static_cast<Status>(status)) {
    case Status::success: return "Successful Completion";
    case Status::invalid_opcode: return "Invalid Command Opcode";
    case Status::invalid_field: return "Invalid Field in Command";
    case Status::command_id_conflict: return "Command ID Conflict";
    case Status::data_transfer_error: return "Data Transfer Error";
    case Status::internal_error: return "Internal Error";
    case Status::abort_requested: return "Command Abort Requested";
    case Status::aborted_sq_deletion: return "Command Aborted due to SQ Deletion";
    case Status::invalid_namespace: return "Invalid Namespace or Format";
    case Status::prp_offset_invalid: return "PRP Offset Invalid";
    case Status::lba_out_of_range: return "LBA Out of Range";
    case Status::capacity_exceeded: return "Capacity Exceeded";
    case Status::namespace_not_ready: return "Namespace Not Ready";
    case Status::conflicting_attributes: return "Conflicting Attributes";
    case Status::write_fault: return "Write Fault";
    case Status::unrecovered_read_error: return "Unrecovered Read Error";
    case Status::guard_check_error: return "End-to-end Guard Check Error";
    case Status::compare_failure: return "Compare Failure";
    case Status::access_denied: return "Access Denied";
    case Status::unwritten_block: return "Deallocated or Unwritten Logical Block";
  }
  switch (static_cast<StatusType>(status >> 8)) {
    case StatusType::generic: return "Unknown Generic Command Status";
    case StatusType::command_specific: return "Unknown Command Specific Status";
    case StatusType::media: return "Unknown Media and Data Integrity Error";
    case StatusType::path: return "Unknown Path Related Status";
    case StatusType::vendor: return "Vendor Specific Status";
  }
  return "Reserved Status Code Type";
}

}  // namespace bam

// Structures cross as bytes at any address.
extern "C" {

void bam_nvme_read_command(uint16_t cid, uint64_t slba, uint32_t n_blocks, uint64_t destination, uint8_t* sqe) {
  bam::Sqe command = bam::read_command(cid, slba, n_blocks, destination);
  std::memcpy(sqe, &command, sizeof command);
}

// What the controller finds in a Read.
void bam_nvme_decode_read(const uint8_t* sqe, uint64_t* slba, uint32_t* n_blocks) {
  bam::Sqe command;
  std::memcpy(&command, sqe, sizeof command);
  *slba = bam::start_block(command);
  *n_blocks = bam::block_count(command);
}

// A completion queue entry as the controller writes it into the ring.
void bam_nvme_completion(uint32_t dw0, uint32_t dw1, uint16_t sqhd, uint16_t sqid, uint16_t cid, uint16_t status,
                         uint8_t* cqe) {
  bam::CqeWords words = bam::pack_cqe({dw0, dw1, sqhd, sqid, cid, status});
  std::memcpy(cqe, &words, sizeof words);
}

// The same entry as the drainer reads it.
void bam_nvme_decode_completion(const uint8_t* ring_entry, uint8_t* cqe) {
  bam::CqeWords words;
  std::memcpy(&words, ring_entry, sizeof words);
  bam::Cqe entry = bam::unpack_cqe(words);
  std::memcpy(cqe, &entry, sizeof entry);
}

uint16_t bam_nvme_status_field(uint16_t status, int32_t do_not_retry) {
  return bam::status_field(static_cast<bam::Status>(status), do_not_retry != 0);
}

uint16_t bam_nvme_status_of(uint16_t field) { return bam::status_of(field); }

uint16_t bam_nvme_status_of_errno(int32_t error) { return static_cast<uint16_t>(bam::status_of_errno(error)); }

const char* bam_nvme_status_name(uint16_t status) { return bam::status_name(status); }

uint64_t bam_nvme_doorbell_offset(uint32_t queue_id, uint32_t stride_exponent, int32_t completion_queue) {
  return completion_queue != 0 ? bam::cq_doorbell_offset(queue_id, stride_exponent)
                               : bam::sq_doorbell_offset(queue_id, stride_exponent);
}

}  // extern "C"
