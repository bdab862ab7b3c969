#include "src/base/memory/caching_memory.h"

#include <utility>

#include "layercast/error.h"

namespace layercast {

std::byte* CachingMemory::Allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (std::byte* const block = Take(kept_, bytes)) return block;
  if (std::byte* const block = Take(idle_, bytes)) return block;
  return used_.insert(NewBlock(bytes)).first->data();
}

// A kept block that serves the request; null if there is none.
std::byte* CachingMemory::Take(Kept& kept, std::size_t bytes) {
  const auto fits = kept.lower_bound(bytes);
  if (fits == kept.end() || (served_by_ == ServedBy::kSameSize && fits->size() != bytes)) return nullptr;
  return used_.insert(kept.extract(fits)).position->data();
}

Buffer CachingMemory::NewBlock(std::size_t bytes) {
  if (served_by_ == ServedBy::kSameSize) {
    try {
      return Buffer(upstream_, bytes);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResourceExhausted) throw;
    }
  }
  kept_.clear();
  idle_.clear();
  return Buffer(upstream_, bytes);
}

void CachingMemory::Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept {
  const std::lock_guard lock(mutex_);
  const auto block = used_.find(address);
  if (block != used_.end()) kept_.insert(used_.extract(block));
}

void CachingMemory::Release() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
  idle_.clear();
}

void CachingMemory::ReleaseIdle() {
  const std::lock_guard lock(mutex_);
  idle_ = std::exchange(kept_, Kept());
}

}  // namespace layercast
