// Structures and codes of the NVM Express base specification (2.0) and its NVM command set that the queues use.
// Everything here is plain data: the same bytes are written by host threads and by GPU threads, and read by the
// software controller or by an SSD. All fields are little-endian, as the machines this runs on.
#pragma once

#include "bam/platform.h"

#if !defined(__CUDACC_RTC__)
#include <cstddef>
#endif

namespace bam {

constexpr uint32_t kBlockBytes = 512;        // a logical block of the software controller (LBA format 0)
constexpr uint32_t kNamespaceId = 1;         // its only namespace
constexpr uint32_t kMaxBlocksPerRead = 1u << 16;  // NLB has 16 bits and counts from 0

enum class Opcode : uint8_t { flush = 0x00, write = 0x01, read = 0x02 };

// Submission queue entry: base specification, figure "Common Command Format".
struct alignas(64) Sqe {
  uint8_t opcode;
  uint8_t flags;  // bits 1:0 fused operation, bits 7:6 PRP or SGL (0: PRP)
  uint16_t cid;   // unique among the commands outstanding in the queue
  uint32_t nsid;
  uint32_t cdw2;
  uint32_t cdw3;
  uint64_t mptr;
  uint64_t prp1;
  uint64_t prp2;
  uint32_t cdw10;
  uint32_t cdw11;
  uint32_t cdw12;
  uint32_t cdw13;
  uint32_t cdw14;
  uint32_t cdw15;
};
static_assert(sizeof(Sqe) == 64, "NVMe base specification");

// Completion queue entry: base specification, figure "Common Completion Queue Entry Layout".
struct alignas(16) Cqe {
  uint32_t dw0;  // command specific; the software controller puts the errno of a failed read here
  uint32_t dw1;  // reserved for the command set; the software controller puts the number of its error record here
  uint16_t sqhd;
  uint16_t sqid;
  uint16_t cid;
  uint16_t status;  // bit 0 phase, 8:1 status code, 11:9 status code type, 13:12 CRD, 14 more, 15 do not retry
};
static_assert(sizeof(Cqe) == 16, "NVMe base specification");

#if !defined(__CUDACC_RTC__)  // which has no offsetof
static_assert(offsetof(Sqe, cid) == 2 && offsetof(Sqe, nsid) == 4, "NVMe base specification");
static_assert(offsetof(Sqe, mptr) == 16 && offsetof(Sqe, prp1) == 24, "NVMe base specification");
static_assert(offsetof(Sqe, prp2) == 32 && offsetof(Sqe, cdw10) == 40, "NVMe base specification");
static_assert(offsetof(Sqe, cdw15) == 60, "NVMe base specification");
static_assert(offsetof(Cqe, sqhd) == 8 && offsetof(Cqe, sqid) == 10, "NVMe base specification");
static_assert(offsetof(Cqe, cid) == 12 && offsetof(Cqe, status) == 14, "NVMe base specification");
#endif

// A completion queue entry as the ring holds it: two words, because it is written and read in two atomic steps.
// The second one carries the phase and is written last.
struct alignas(16) CqeWords {
  uint64_t low;   // dw0, dw1
  uint64_t high;  // sqhd, sqid, cid, status
};
static_assert(sizeof(CqeWords) == sizeof(Cqe), "the same bytes");

BAM_HD constexpr CqeWords pack_cqe(const Cqe& cqe) {
  return {uint64_t{cqe.dw0} | uint64_t{cqe.dw1} << 32, uint64_t{cqe.sqhd} | uint64_t{cqe.sqid} << 16 |
                                                          uint64_t{cqe.cid} << 32 | uint64_t{cqe.status} << 48};
}

BAM_HD constexpr Cqe unpack_cqe(const CqeWords& words) {
  return {static_cast<uint32_t>(words.low),        static_cast<uint32_t>(words.low >> 32),
          static_cast<uint16_t>(words.high),       static_cast<uint16_t>(words.high >> 16),
          static_cast<uint16_t>(words.high >> 32), static_cast<uint16_t>(words.high >> 48)};
}

// Where the bytes of a command lie: the two words of the data pointer, and the bits of Sqe::flags that say whether
// these are PRP entries or an SGL descriptor. data_pointer.h makes them.
struct DataPointer {
  uint64_t first;
  uint64_t second;
  uint8_t flags;
};
static_assert(sizeof(DataPointer) == 24, "ABI");

// A Read or Write of `n_blocks` (1 .. 65536) from `slba`. NLB counts from 0, so an empty transfer cannot be said.
BAM_HD inline Sqe transfer_command(Opcode opcode, uint16_t cid, uint32_t nsid, uint64_t slba, uint32_t n_blocks,
                                   const DataPointer& data) {
  Sqe sqe{};
  sqe.opcode = static_cast<uint8_t>(opcode);
  sqe.flags = data.flags;
  sqe.cid = cid;
  sqe.nsid = nsid;
  sqe.prp1 = data.first;
  sqe.prp2 = data.second;
  sqe.cdw10 = static_cast<uint32_t>(slba);
  sqe.cdw11 = static_cast<uint32_t>(slba >> 32);
  sqe.cdw12 = n_blocks - 1;
  return sqe;
}

// A Read for the software controller, which takes one contiguous destination of any length in PRP entry 1. (An SSD
// needs PRP entry 2 or a list beyond one memory page.)
BAM_HD inline Sqe read_command(uint16_t cid, uint64_t slba, uint32_t n_blocks, uint64_t destination) {
  return transfer_command(Opcode::read, cid, kNamespaceId, slba, n_blocks, {destination, 0, 0});
}

BAM_HD inline uint64_t start_block(const Sqe& sqe) { return uint64_t{sqe.cdw10} | uint64_t{sqe.cdw11} << 32; }
BAM_HD inline uint32_t block_count(const Sqe& sqe) { return (sqe.cdw12 & 0xffffu) + 1; }

enum class StatusType : uint8_t { generic = 0, command_specific = 1, media = 2, path = 3, vendor = 7 };

// Status codes that the code tells apart, as `type << 8 | code`; nvme_status.cc has the names of all.
enum class Status : uint16_t {
  success = 0x000,
  invalid_opcode = 0x001,
  invalid_field = 0x002,
  command_id_conflict = 0x003,
  data_transfer_error = 0x004,
  internal_error = 0x006,
  abort_requested = 0x007,
  aborted_sq_deletion = 0x008,
  invalid_namespace = 0x00b,
  prp_offset_invalid = 0x013,
  write_protected = 0x020,
  command_interrupted = 0x021,
  transient_transport_error = 0x022,
  lba_out_of_range = 0x080,
  capacity_exceeded = 0x081,
  namespace_not_ready = 0x082,
  conflicting_attributes = 0x180,
  write_to_read_only = 0x182,
  write_fault = 0x280,
  unrecovered_read_error = 0x281,
  guard_check_error = 0x282,
  application_tag_error = 0x283,
  reference_tag_error = 0x284,
  compare_failure = 0x285,
  access_denied = 0x286,
  unwritten_block = 0x287,
};

constexpr uint16_t kPhaseBit = 1;
constexpr uint16_t kDoNotRetry = 1u << 15;

// The status field of a CQE, its phase bit clear.
BAM_HD constexpr uint16_t status_field(Status status, bool do_not_retry = false) {
  uint16_t value = static_cast<uint16_t>(status);
  return static_cast<uint16_t>((value & 0xffu) << 1 | (value >> 8 & 7u) << 9 | (do_not_retry ? kDoNotRetry : 0u));
}

// `type << 8 | code` of a status field, whatever its phase, CRD, more and do-not-retry bits.
BAM_HD constexpr uint16_t status_of(uint16_t field) {
  return static_cast<uint16_t>((field >> 1 & 0xffu) | (field >> 9 & 7u) << 8);
}

BAM_HD constexpr bool succeeded(uint16_t field) { return status_of(field) == 0; }

// Doorbell registers, in bytes from the first one (PCIe transport specification, "Doorbell"): submission queue
// tail of queue y at 2y strides, its completion queue head one stride later; a stride is 4 << CAP.DSTRD bytes.
BAM_HD constexpr uint64_t sq_doorbell_offset(uint32_t queue_id, uint32_t stride_exponent) {
  return uint64_t{2} * queue_id * (uint64_t{4} << stride_exponent);
}
BAM_HD constexpr uint64_t cq_doorbell_offset(uint32_t queue_id, uint32_t stride_exponent) {
  return (uint64_t{2} * queue_id + 1) * (uint64_t{4} << stride_exponent);
}

#if !defined(__CUDACC_RTC__)
// Host only; defined in nvme_status.cc.
Status status_of_errno(int error);          // 0 is success; an errno without a counterpart is an internal error
int errno_of_status(uint16_t status);       // of `type << 8 | code`; 0 for success alone
const char* status_name(uint16_t status);   // of `type << 8 | code`, as the specification spells it
#endif

}  // namespace bam
