#include "src/base/memory/counting_memory.h"

#include <cstring>

#include "src/base/raise_to.h"

namespace layercast {

std::byte* CountingMemory::Allocate(std::size_t bytes) {
  std::byte* address = upstream_.Allocate(bytes);
  const std::size_t now = current_.fetch_add(bytes) + bytes;
  allocations_.fetch_add(1);
  RaiseTo(peak_, now);
  return address;
}

void CountingMemory::Deallocate(std::byte* address, std::size_t bytes) noexcept {
  upstream_.Deallocate(address, bytes);
  current_.fetch_sub(bytes);
}

std::byte* FillingMemory::Allocate(std::size_t bytes) {
  std::byte* address = upstream_.Allocate(bytes);
  std::memset(address, static_cast<int>(fill_), bytes);
  return address;
}

void FillingMemory::Deallocate(std::byte* address, std::size_t bytes) noexcept { upstream_.Deallocate(address, bytes); }

}  // namespace layercast
