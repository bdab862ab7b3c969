#include "src/transport/shm/segment_cache.h"

#include <utility>

namespace layercast::shm_channel {
namespace {

// A publisher that keeps two versions uses a segment again at every second or third.
constexpr std::uint64_t kKeptSessions = 4;

}  // namespace

void SegmentCache::Begin(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (open_++ == 0) publishers_.clear();
  publishers_.insert(address);
}

void SegmentCache::End() {
  const std::lock_guard lock(mutex_);
  if (--open_ != 0) return;
  ++ended_;
  std::erase_if(entries_, [&](const auto& entry) {
    const bool wanted = publishers_.contains(entry.second.address) && entry.second.used + kKeptSessions >= ended_;
    return !wanted && entry.second.mapping.use_count() == 1;
  });
}

std::shared_ptr<const Mapping> SegmentCache::Map(const std::string& address, const UniqueFd& fd) {
  const FileIdentity identity = IdentityOf(fd);
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[identity];
  if (entry.mapping == nullptr) {
    try {
      entry.mapping = std::make_shared<const Mapping>(MapReadOnly(fd));
    } catch (...) {
      entries_.erase(identity);
      throw;
    }
    entry.address = address;
  }
  entry.used = ended_;
  return entry.mapping;
}

void SegmentCache::DropAll(const std::string& address) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.address == address; });
}

std::size_t SegmentCache::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace layercast::shm_channel
