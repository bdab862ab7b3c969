// Where memory comes from: the resources that it is allocated from, and blocks of it. Used on both sides.
#pragma once

#include <cstddef>
#include <span>

#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

// Bytes: the size of a cache line, and of the widest vector register.
inline constexpr std::size_t kMemoryAlignment = 64;

// Resource; thread-safe. Outlives every Buffer taken from it.
class LAYERCAST_PUBLIC MemoryResource {
 public:
  virtual ~MemoryResource() = default;
  // Returns `bytes` of uninitialized memory, aligned to kMemoryAlignment at least. Throws kResourceExhausted.
  virtual std::byte* Allocate(std::size_t bytes) = 0;
  virtual void Deallocate(std::byte* address, std::size_t bytes) noexcept = 0;
  virtual Device device() const { return {}; }
};

// Ordinary host memory. Stateless; thread-safe.
class LAYERCAST_PUBLIC HostMemory final : public MemoryResource {
 public:
  std::byte* Allocate(std::size_t bytes) override;
  void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
};

// A block of memory that it owns and gives back. Resource; move-only; one thread at a time.
class LAYERCAST_PUBLIC Buffer {
 public:
  Buffer() = default;
  Buffer(MemoryResource& memory, std::size_t bytes);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_, size_}; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  MemoryResource* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace layercast
