#include "src/device/cuda/vmm_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/rounding.h"
#include "src/device/cuda/call.h"
#include "src/device/cuda/open_vmm_memory.h"

namespace layercast {
namespace {

// All that the device has: addresses cost nothing, and no more memory can ever be behind them.
std::size_t BytesOf(int device) {
  const OnCudaDevice scope(device);
  std::size_t free = 0;
  std::size_t total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", device);
  return total;
}

}  // namespace

std::unique_ptr<SleepableMemory> OpenVmmMemory(int device) { return std::make_unique<VmmMemory>(device); }

VmmMemory::VmmMemory(int device, const VmmFunctions& functions)
    : stream_(device),
      vmm_(functions, device),
      properties_(vmm_.Properties(CU_MEM_HANDLE_TYPE_NONE)),
      granularity_(vmm_.Granularity(properties_)),
      pinned_(device),
      reserved_(RoundUp(BytesOf(device), granularity_)) {
  const OnCudaDevice scope(device);
  vmm_.Expect(vmm_.functions().reserve(&base_, reserved_, 0, 0, 0), "cuMemAddressReserve");
}

VmmMemory::~VmmMemory() {
  GiveBackOnCuda(vmm_.device(), "cuMemAddressFree", [&] {
    if (!asleep_) std::ranges::for_each(blocks_, [&](const Block& block) { Unmap(block); });
    vmm_.Log(vmm_.functions().free_address(base_, reserved_), "cuMemAddressFree");
    return cudaSuccess;
  });
}

// What is handed out lies within one block: so it can be registered and copied as one thing.
std::byte* VmmMemory::Allocate(std::size_t bytes) {
  if (asleep_) throw Error(ErrorCode::kFailedPrecondition, "an allocation from memory that sleeps");
  if (bytes > reserved_ - End()) {
    throw Error(ErrorCode::kResourceExhausted, "CUDA device " + std::to_string(vmm_.device()) + ": " +
                                                   std::to_string(bytes) + " bytes beside " + std::to_string(End()) +
                                                   ": the device has " + std::to_string(reserved_));
  }
  const std::size_t size = RoundUp(std::max<std::size_t>(bytes, 1), kMemoryAlignment);
  if (size > End() - used_) {
    used_ = End();
    Grow(RoundUp(size, granularity_));
  }
  std::byte* const address = AddressOf(used_);
  used_ += size;
  return address;
}

void VmmMemory::Grow(std::size_t size) {
  const OnCudaDevice scope(vmm_.device());
  Block block{.begin = End(), .size = size};
  blocks_.reserve(blocks_.size() + 1);
  Map(block);
  blocks_.push_back(block);
  Zero(block);
  stream_.Synchronize();
}

void VmmMemory::Zero(const Block& block) const {
  CheckCuda(cudaMemsetAsync(AddressOf(block.begin), 0, block.size, stream_.handle()), "cudaMemsetAsync", vmm_.device());
}

// Puts fresh memory behind the addresses of a block, or leaves them without any.
void VmmMemory::Map(Block& block) {
  const VmmFunctions& functions = vmm_.functions();
  vmm_.Expect(functions.create(&block.allocation, block.size, &properties_, 0),
              ("cuMemCreate of " + std::to_string(block.size) + " bytes").c_str());
  const CUdeviceptr at = base_ + block.begin;
  const CUresult mapped = functions.map(at, block.size, 0, block.allocation, 0);
  if (mapped != CUDA_SUCCESS) vmm_.Log(functions.release(block.allocation), "cuMemRelease");
  vmm_.Expect(mapped, "cuMemMap");
  const CUresult accessible = vmm_.SetAccess(at, block.size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (accessible != CUDA_SUCCESS) Unmap(block);
  vmm_.Expect(accessible, "cuMemSetAccess");
}

void VmmMemory::Unmap(const Block& block) noexcept {
  vmm_.Log(vmm_.functions().unmap(base_ + block.begin, block.size), "cuMemUnmap");
  vmm_.Log(vmm_.functions().release(block.allocation), "cuMemRelease");
}

std::size_t VmmMemory::Sleep(SleepLevel level) {
  if (asleep_) return 0;
  const OnCudaDevice scope(vmm_.device());
  if (level == SleepLevel::kKeep) {
    Buffer copy(pinned_, End());
    Copy([&](const Block& block) { return Way{copy.data() + block.begin, AddressOf(block.begin)}; });
    kept_ = std::move(copy);
  }
  asleep_ = true;
  std::ranges::for_each(blocks_, [&](const Block& block) { Unmap(block); });
  return End();
}

void VmmMemory::Wake() {
  if (!asleep_) return;
  const OnCudaDevice scope(vmm_.device());
  std::size_t mapped = 0;
  try {
    for (; mapped < blocks_.size(); ++mapped) Map(blocks_[mapped]);
    if (kept_) {
      Copy([&](const Block& block) { return Way{AddressOf(block.begin), kept_.data() + block.begin}; });
    } else {
      std::ranges::for_each(blocks_, [&](const Block& block) { Zero(block); });
      stream_.Synchronize();
    }
  } catch (...) {
    for (std::size_t i = 0; i < mapped; ++i) Unmap(blocks_[i]);
    throw;
  }
  kept_ = Buffer();
  asleep_ = false;
}

void VmmMemory::Copy(const std::function<Way(const Block&)>& way_of) const {
  for (const Block& block : blocks_) {
    const Way way = way_of(block);
    CheckCuda(cudaMemcpyAsync(way.to, way.from, block.size, cudaMemcpyDefault, stream_.handle()), "cudaMemcpyAsync",
              vmm_.device());
  }
  stream_.Synchronize();
}

}  // namespace layercast
