#include "layercast/memory.h"

#include <new>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/exhausted.h"

namespace layercast {
namespace {
constexpr std::align_val_t kAlignment{kMemoryAlignment};
}

std::byte* HostMemory::Allocate(std::size_t bytes) {
  void* address = ::operator new(bytes, kAlignment, std::nothrow);
  if (address == nullptr) throw OutOfMemory("host memory", bytes);
  return static_cast<std::byte*>(address);
}

void HostMemory::Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept {
  ::operator delete(address, kAlignment);
}

Buffer::Buffer(MemoryResource& memory, std::size_t bytes)
    : memory_(&memory), data_(memory.Allocate(bytes)), size_(bytes) {
  if (data_ != nullptr || bytes == 0) return;
  throw Error(ErrorCode::kResourceExhausted, "a memory resource gave none of " + std::to_string(bytes) + " bytes");
}

Buffer::Buffer(Buffer&& other) noexcept
    : memory_(other.memory_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) memory_->Deallocate(data_, size_);
}

}  // namespace layercast
