#include "bam/dma_space.h"

#include <linux/vfio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fork_guard.h"
#include "staging.h"

namespace bam {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLargePage = 2 << 20;

// linux/iommufd.h, which older headers lack.
struct IoasMap {
  uint32_t size, flags, ioas_id, reserved;
  uint64_t user_va, length, iova;
};
struct IoasUnmap {
  uint32_t size, ioas_id;
  uint64_t iova, length;
};
constexpr uint32_t kIoasMap = _IO(';', 0x85), kIoasUnmap = _IO(';', 0x86);
constexpr uint32_t kFixedIova = 1, kWriteable = 2, kReadable = 4;

template <class T>
DmaRequest as_request(uint64_t number, const T& argument) {
  DmaRequest request{number, std::vector<uint8_t>(sizeof argument)};
  std::memcpy(request.argument.data(), &argument, sizeof argument);
  return request;
}

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

DmaRequest encode_map(DmaKind kind, uint32_t ioas, uint64_t address, uint64_t bytes, uint64_t iova) {
  if (kind == DmaKind::iommufd)
    return as_request(kIoasMap, IoasMap{sizeof(IoasMap), kFixedIova | kWriteable | kReadable, ioas, 0, address, bytes,
                                        iova});
  vfio_iommu_type1_dma_map map{};
  map.argsz = sizeof map;
  map.flags = VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE;
  map.vaddr = address;
  map.iova = iova;
  map.size = bytes;
  return as_request(VFIO_IOMMU_MAP_DMA, map);
}

DmaRequest encode_unmap(DmaKind kind, uint32_t ioas, uint64_t bytes, uint64_t iova) {
  if (kind == DmaKind::iommufd) return as_request(kIoasUnmap, IoasUnmap{sizeof(IoasUnmap), ioas, iova, bytes});
  vfio_iommu_type1_dma_unmap unmap{};
  unmap.argsz = sizeof unmap;
  unmap.iova = iova;
  unmap.size = bytes;
  return as_request(VFIO_IOMMU_UNMAP_DMA, unmap);
}

DmaSpace::DmaSpace(DmaKind kind, int fd, uint32_t ioas, std::vector<DmaRange> ranges)
    : kind_(kind), ioas_(ioas), ranges_(std::move(ranges)), fork_generation_(fork_generation()) {
  if (kind != DmaKind::identity) fd_ = dup(fd);
}

DmaSpace::~DmaSpace() {
  // A forked child shares the descriptor: ending the mappings would end the parent's.
  if (fork_generation_ == fork_generation()) {
    for (const auto& [address, mapping] : mappings_) request(encode_unmap(kind_, ioas_, mapping.bytes, mapping.iova));
  }
  if (fd_ >= 0) close(fd_);
}

int DmaSpace::map(void* base, size_t bytes, uint64_t* iova) {
  uint64_t address = reinterpret_cast<uint64_t>(base);
  if (address % kPage != 0 || bytes % kPage != 0 || bytes == 0) return EINVAL;
  std::unique_lock lock(mutex_);
  if (auto found = mappings_.find(address); found != mappings_.end()) {
    if (found->second.bytes != bytes) return EEXIST;
    found->second.users++;
    *iova = found->second.iova;
    return 0;
  }
  if (kind_ == DmaKind::identity) *iova = address;
  else if (!choose_iova(bytes, iova)) return ENOSPC;
  if (int error = request(encode_map(kind_, ioas_, address, bytes, *iova))) return error;
  mappings_[address] = {bytes, *iova, 1};
  used_[*iova] = bytes;
  return 0;
}

void DmaSpace::unmap(void* base) {
  std::unique_lock lock(mutex_);
  auto found = mappings_.find(reinterpret_cast<uint64_t>(base));
  if (found == mappings_.end() || --found->second.users != 0) return;
  if (fork_generation_ == fork_generation())
    request(encode_unmap(kind_, ioas_, found->second.bytes, found->second.iova));
  used_.erase(found->second.iova);
  mappings_.erase(found);
}

uint8_t* DmaSpace::allocate(size_t bytes, uint64_t* iova, int* error) {
  auto memory = std::make_unique<Staging>(round_up(bytes, kPage));
  *error = memory->base() == nullptr ? ENOMEM : map(memory->base(), memory->bytes(), iova);
  if (*error != 0) return nullptr;
  std::unique_lock lock(mutex_);
  allocated_.push_back(std::move(memory));
  return allocated_.back()->base();
}

bool DmaSpace::translate(const void* address, uint64_t bytes, uint64_t* iova) const {
  uint64_t first = reinterpret_cast<uint64_t>(address);
  std::shared_lock lock(mutex_);
  auto after = mappings_.upper_bound(first);
  if (after == mappings_.begin()) return false;
  const auto& [base, mapping] = *std::prev(after);
  if (first - base > mapping.bytes || bytes > mapping.bytes - (first - base)) return false;
  *iova = mapping.iova + (first - base);
  return true;
}

// The lowest gap that is large enough. Large mappings begin at a multiple of a large page, for the IOMMU's sake.
bool DmaSpace::choose_iova(uint64_t bytes, uint64_t* iova) const {
  uint64_t unit = bytes >= kLargePage ? kLargePage : kPage;
  for (const DmaRange& range : ranges_) {
    uint64_t at = round_up(range.first, unit);
    for (const auto& [used, used_bytes] : used_) {
      if (used + used_bytes <= at || used > range.last) continue;
      if (used >= at && used - at >= bytes) break;
      at = round_up(used + used_bytes, unit);
    }
    if (at <= range.last && range.last - at >= bytes - 1) {
      *iova = at;
      return true;
    }
  }
  return false;
}

int DmaSpace::request(const DmaRequest& request) const {
  if (kind_ == DmaKind::identity) return 0;
  std::vector<uint8_t> argument = request.argument;
  return ioctl(fd_, request.number, argument.data()) == 0 ? 0 : errno;
}

}  // namespace bam
