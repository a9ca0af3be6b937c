// Data pointers of commands (NVM Express base specification, "Physical Region Page Entry and List", "Scatter Gather
// List"): how a command says where its bytes lie. Compiled for the host and the GPU.
//
// Memory is contiguous in the drive's address space here (dma_space.h maps it so), whatever it is physically. So a
// transfer is one SGL descriptor, or PRP entries that follow each other page by page.
#pragma once

#include "bam/nvme.h"

namespace bam {

constexpr uint32_t kPrpEntryBytes = 8;
constexpr uint8_t kSglFlag = 1u << 6;  // Sqe::flags bits 7:6: 01b, SGL for the data, none for metadata

// Memory pages that `bytes` bytes at `address` touch.
BAM_HD constexpr uint64_t pages_touched(uint64_t address, uint64_t bytes, uint32_t page_bytes) {
  return ((address & (page_bytes - 1)) + bytes + page_bytes - 1) / page_bytes;
}

// Entries of a PRP list, links to further pages of the list included, when `n_pages` pages are to be named in it.
BAM_HD constexpr uint64_t prp_list_entries(uint64_t n_pages, uint32_t page_bytes) {
  uint64_t in_a_page = page_bytes / kPrpEntryBytes;
  if (n_pages <= in_a_page) return n_pages;
  return n_pages + (n_pages - 2) / (in_a_page - 1);  // each full page of the list but the last ends with a link
}

// Bytes to set aside for the list of a transfer of up to `bytes` that starts anywhere in a page. A power of two, or
// whole pages: lists that lie one after another from a page's beginning on never cross a page unless they fill it.
BAM_HD constexpr uint32_t prp_list_bytes(uint64_t bytes, uint32_t page_bytes) {
  uint64_t needed = prp_list_entries(pages_touched(page_bytes - 4, bytes, page_bytes) - 1, page_bytes) * kPrpEntryBytes;
  if (needed > page_bytes) return static_cast<uint32_t>((needed + page_bytes - 1) / page_bytes * page_bytes);
  uint32_t size = kPrpEntryBytes;
  while (size < needed) size *= 2;
  return size;
}

// PRP entries for `bytes` > 0 bytes at `address`, a multiple of 4. Up to two pages fit in the command itself. Else the
// pages after the first are named in `list`, which the drive finds at `list_address`; where it goes on in another
// page, the last entry of a page is the address of the next one.
BAM_HD inline DataPointer prp_pointer(uint64_t address, uint64_t bytes, uint32_t page_bytes, uint64_t* list,
                                      uint64_t list_address) {
  uint64_t n_left = pages_touched(address, bytes, page_bytes) - 1;
  uint64_t page = (address & ~uint64_t{page_bytes - 1}) + page_bytes;
  if (n_left == 0) return {address, 0, 0};
  if (n_left == 1) return {address, page, 0};
  uint64_t in_a_page = page_bytes / kPrpEntryBytes;
  for (uint64_t entry = 0; n_left > 0; entry++) {
    if (entry % in_a_page == in_a_page - 1 && n_left > 1) {
      list[entry] = list_address + (entry + 1) * kPrpEntryBytes;
      continue;
    }
    list[entry] = page;
    page += page_bytes;
    n_left--;
  }
  return {address, list_address, 0};
}

// One SGL Data Block descriptor: address, length, type 0 in the highest byte.
BAM_HD constexpr DataPointer sgl_pointer(uint64_t address, uint64_t bytes) { return {address, bytes, kSglFlag}; }

}  // namespace bam
