#include "layercast/memory.h"

#include <sys/mman.h>

#include <new>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/exhausted.h"

namespace layercast {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// A block of several huge pages begins with one.
bool IsHuge(std::size_t bytes) { return bytes >= 4 * kHugePage; }
std::align_val_t AlignmentOf(std::size_t bytes) {
  return std::align_val_t{IsHuge(bytes) ? kHugePage : kMemoryAlignment};
}

}  // namespace

// Fresh memory costs a fault for each page, and the kernel takes small ones unless it is asked for others.
std::byte* HostMemory::Allocate(std::size_t bytes) {
  void* address = ::operator new(bytes, AlignmentOf(bytes), std::nothrow);
  if (address == nullptr) throw OutOfMemory("host memory", bytes);
  if (IsHuge(bytes)) ::madvise(address, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return static_cast<std::byte*>(address);
}

void HostMemory::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  ::operator delete(address, AlignmentOf(bytes));
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
