#include "src/base/caching_memory.h"

#include <utility>

namespace layercast {

std::byte* CachingMemory::Allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto fits = kept_.lower_bound(bytes);
  if (fits != kept_.end() && (served_by_ == ServedBy::kLargeEnough || fits->size() == bytes)) {
    return used_.insert(kept_.extract(fits)).position->data();
  }
  if (served_by_ == ServedBy::kLargeEnough) kept_.clear();
  return used_.emplace(upstream_, bytes).first->data();
}

void CachingMemory::Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept {
  const std::lock_guard lock(mutex_);
  const auto block = used_.find(address);
  if (block != used_.end()) kept_.insert(used_.extract(block));
}

void CachingMemory::Release() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
}

}  // namespace layercast
