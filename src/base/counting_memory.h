// Memory resources that wrap another: counting (so that "one layer at a time" is asserted in bytes),
// and filling (so that a byte nobody wrote shows: load over two fills, compare).
#pragma once

#include <atomic>
#include <cstddef>

#include "layercast/memory.h"

namespace layercast {

// Thread-safe.
class CountingMemory final : public MemoryResource {
 public:
  explicit CountingMemory(MemoryResource& upstream) : upstream_(upstream) {}
  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
  Device device() const override { return upstream_.device(); }

  std::size_t current_bytes() const { return current_.load(); }
  std::size_t peak_bytes() const { return peak_.load(); }
  std::size_t allocations() const { return allocations_.load(); }
  void ResetPeak() { peak_.store(current_.load()); }

 private:
  MemoryResource& upstream_;
  std::atomic<std::size_t> current_{0};
  std::atomic<std::size_t> peak_{0};
  std::atomic<std::size_t> allocations_{0};
};

// Host memory only. Thread-safe.
class FillingMemory final : public MemoryResource {
 public:
  FillingMemory(MemoryResource& upstream, std::byte fill) : upstream_(upstream), fill_(fill) {}
  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;

 private:
  MemoryResource& upstream_;
  std::byte fill_;
};

}  // namespace layercast
