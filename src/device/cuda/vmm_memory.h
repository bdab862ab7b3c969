// Device memory that can sleep: reserved addresses with memory of the driver behind them. Used for the weights and the
// caches of a rank on a GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "layercast/memory.h"
#include "src/base/memory/sleepable_memory.h"
#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_stream.h"
#include "src/device/cuda/vmm.h"

namespace layercast {

// Hands out memory in the order of the calls, and takes none of it back before its own end. What it hands out is zero.
// Resource; one thread at a time.
class VmmMemory final : public SleepableMemory {
 public:
  // Throws kUnsupported, saying why, if there is no such device or it has no VMM.
  explicit VmmMemory(int device, const VmmFunctions& functions = LoadVmm());
  ~VmmMemory() override;
  VmmMemory(const VmmMemory&) = delete;
  VmmMemory& operator=(const VmmMemory&) = delete;

  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
  Device device() const override { return {Device::Kind::kCuda, vmm_.device()}; }

  std::size_t Sleep(SleepLevel level) override;
  void Wake() override;
  bool asleep() const override { return asleep_; }

 private:
  // Memory of the driver, which is mapped and given back as a whole.
  struct Block {
    std::size_t begin = 0;  // from base_
    std::size_t size = 0;
    CUmemGenericAllocationHandle allocation = 0;
  };

  struct Way {
    std::byte* to;
    const std::byte* from;
  };

  void Grow(std::size_t size);
  void Map(Block& block);
  void Zero(const Block& block) const;
  void Unmap(const Block& block) noexcept;
  void Copy(const std::function<Way(const Block&)>& way_of) const;  // all blocks
  std::size_t End() const { return blocks_.empty() ? 0 : blocks_.back().begin + blocks_.back().size; }
  std::byte* AddressOf(std::size_t begin) const { return reinterpret_cast<std::byte*>(base_) + begin; }

  const CudaStream stream_;
  const Vmm vmm_;
  const CUmemAllocationProp properties_;
  const std::size_t granularity_;
  PinnedMemory pinned_;
  std::size_t reserved_ = 0;
  CUdeviceptr base_ = 0;
  std::vector<Block> blocks_;  // without gaps
  std::size_t used_ = 0;       // of all blocks but the last, everything
  Buffer kept_;                // while it sleeps: the copy of all blocks
  bool asleep_ = false;
};

}  // namespace layercast
