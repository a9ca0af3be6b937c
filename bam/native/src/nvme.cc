// A C ABI that encodes the structures of the specification, for tests and for Python.
#include "bam/nvme.h"

#include <cstring>

#include "bam/data_pointer.h"

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

int32_t bam_nvme_errno_of_status(uint16_t status) { return bam::errno_of_status(status); }

uint16_t bam_nvme_status_of_errno(int32_t error) { return static_cast<uint16_t>(bam::status_of_errno(error)); }

const char* bam_nvme_status_name(uint16_t status) { return bam::status_name(status); }

// A Read or Write (`opcode`) of `n_blocks` that starts at `slba` of namespace `nsid`. Its data lies at `address`, as the
// drive sees it, and is described by an SGL or by PRPs; `list` (at `list_address`) takes the PRP list if one is needed.
void bam_nvme_transfer_command(uint8_t opcode, uint16_t cid, uint32_t nsid, uint64_t slba, uint32_t n_blocks,
                               uint64_t address, uint64_t bytes, uint32_t page_bytes, int32_t use_sgl, uint64_t* list,
                               uint64_t list_address, uint8_t* sqe) {
  bam::DataPointer data = use_sgl != 0 ? bam::sgl_pointer(address, bytes)
                                       : bam::prp_pointer(address, bytes, page_bytes, list, list_address);
  bam::Sqe command = bam::transfer_command(static_cast<bam::Opcode>(opcode), cid, nsid, slba, n_blocks, data);
  std::memcpy(sqe, &command, sizeof command);
}

// `pointer`: sizeof(DataPointer) bytes at any address; the rest as above.
void bam_nvme_data_pointer(uint64_t address, uint64_t bytes, uint32_t page_bytes, int32_t use_sgl, uint64_t* list,
                           uint64_t list_address, uint8_t* pointer) {
  bam::DataPointer data = use_sgl != 0 ? bam::sgl_pointer(address, bytes)
                                       : bam::prp_pointer(address, bytes, page_bytes, list, list_address);
  std::memcpy(pointer, &data, sizeof data);
}

uint32_t bam_nvme_prp_list_bytes(uint64_t bytes, uint32_t page_bytes) {
  return bam::prp_list_bytes(bytes, page_bytes);
}

uint64_t bam_nvme_doorbell_offset(uint32_t queue_id, uint32_t stride_exponent, int32_t completion_queue) {
  return completion_queue != 0 ? bam::cq_doorbell_offset(queue_id, stride_exponent)
                               : bam::sq_doorbell_offset(queue_id, stride_exponent);
}

}  // extern "C"
