// Memory that a drive may read and write, and the addresses it has there (host only).
//
// An IOMMU gives a device an address space of its own. Each mapping here is contiguous in it, so that a command can
// name any number of pages by the first address alone. Addresses come from the ranges that the IOMMU lets us use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace bam {

enum class DmaKind : uint32_t {
  identity = 0,    // no IOMMU: addresses of this process, for drives that are threads of it (tests)
  vfio_type1 = 1,  // `fd`: a VFIO container with the type 1 IOMMU
  iommufd = 2,     // `fd`: /dev/iommu with the address space `ioas`
};

// Both ends included.
struct DmaRange {
  uint64_t first;
  uint64_t last;
};

// An ioctl: its number and the bytes of its argument.
struct DmaRequest {
  uint64_t number;
  std::vector<uint8_t> argument;
};
DmaRequest encode_map(DmaKind kind, uint32_t ioas, uint64_t address, uint64_t bytes, uint64_t iova);
DmaRequest encode_unmap(DmaKind kind, uint32_t ioas, uint64_t bytes, uint64_t iova);

class Staging;

class DmaSpace {
 public:
  // Keeps a duplicate of `fd` (none for `identity`). `ranges` in ascending order.
  DmaSpace(DmaKind kind, int fd, uint32_t ioas, std::vector<DmaRange> ranges);
  ~DmaSpace();  // ends all mappings and frees what was allocated
  DmaSpace(const DmaSpace&) = delete;
  DmaSpace& operator=(const DmaSpace&) = delete;

  // Lets the drive use [base, base + bytes), whole memory pages. 0 or an errno: ENOMEM, the limit for locked memory;
  // ENOSPC, no addresses left. Memory that is mapped already is mapped until unmap() was called as often as map().
  int map(void* base, size_t bytes, uint64_t* iova);
  void unmap(void* base);
  // Memory of its own, zeroed, mapped and kept until the end. Null and an errno in `error`.
  uint8_t* allocate(size_t bytes, uint64_t* iova, int* error);
  // Where the drive sees [address, address + bytes); false unless one mapping holds it all.
  bool translate(const void* address, uint64_t bytes, uint64_t* iova) const;

 private:
  struct Mapping {
    uint64_t bytes;
    uint64_t iova;
    uint32_t users;  // several threads of a controller register the same memory
  };
  bool choose_iova(uint64_t bytes, uint64_t* iova) const;
  int request(const DmaRequest& request) const;

  const DmaKind kind_;
  int fd_ = -1;
  const uint32_t ioas_;
  const std::vector<DmaRange> ranges_;
  const uint32_t fork_generation_;
  mutable std::shared_mutex mutex_;         // guards what follows
  std::map<uint64_t, Mapping> mappings_;    // by address in this process
  std::map<uint64_t, uint64_t> used_;       // bytes by address of the drive
  std::vector<std::unique_ptr<Staging>> allocated_;
};

}  // namespace bam
