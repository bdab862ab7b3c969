// Memory resources that wrap another, for tests. CountingMemory counts, so that "one layer at a time" is asserted in
// bytes. FillingMemory fills, so that a byte that nobody wrote shows: two loads over different fills then differ.
#pragma once

#include <atomic>
#include <cstddef>

#include "layercast/memory.h"

namespace layercast {

// Resource; thread-safe.
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

// Wraps host memory only. Resource; thread-safe.
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
