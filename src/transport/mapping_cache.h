// A receiver's mappings of publishers' segments, kept between sessions: a publisher uses its segments again for the
// next version, and to map one anew costs milliseconds, or its page faults again. What a process offered that has ended
// goes at once. Used by shm and cuda_ipc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "src/transport/process_watch.h"

namespace layercast {

// A session has a connection to each of its publishers, all open at the same time: it ends with the last of them. Where
// a channel is measured before it is chosen, that is one too. `Key`: a segment's, among all that a receiver sees.
// Thread-safe.
template <typename Key, typename Mapping>
class MappingCache {
 public:
  // A connection to `address` begins: `socket`.
  void Begin(const std::string& address, int socket) {
    watch_.Watch(address, socket);
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) publishers_.clear();
    publishers_.insert(address);
  }
  // A connection ends. With the last of a session go mappings of publishers that it had no connection to, and those
  // that the last few sessions did not use.
  void End() {
    const std::lock_guard lock(mutex_);
    if (--open_ != 0) return;
    ++ended_;
    std::erase_if(kept_, [&](const auto& entry) {
      const bool wanted = publishers_.contains(entry.second.address) && entry.second.used + kKeptSessions >= ended_;
      return !wanted && entry.second.mapping.use_count() == 1;
    });
  }
  // The mapping of this segment of the publisher at `address`; where there is none, what `map` makes, which may throw.
  // Shared by the cache and by the connections that use it.
  template <typename Map>
  std::shared_ptr<const Mapping> Get(const Key& key, const std::string& address, const Map& map) {
    const std::lock_guard lock(mutex_);
    auto found = kept_.find(key);
    if (found == kept_.end()) found = kept_.emplace(key, Kept{map(), address}).first;
    found->second.used = ended_;
    return found->second.mapping;
  }
  // Its publisher will not use it again. Here and below, connections keep what they use until they end.
  void Drop(const Key& key) {
    const std::lock_guard lock(mutex_);
    kept_.erase(key);
  }
  // That publisher may be gone, and mappings would keep its memory.
  void DropAll(const std::string& address) {
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [&](const auto& entry) { return entry.second.address == address; });
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return kept_.size();
  }

 private:
  // A publisher that keeps two versions uses a segment again at every second or third.
  static constexpr std::uint64_t kKeptSessions = 4;

  struct Kept {
    std::shared_ptr<const Mapping> mapping;
    std::string address;
    std::uint64_t used = 0;  // number of sessions that had ended by then
  };
  mutable std::mutex mutex_;
  std::map<Key, Kept> kept_;          // guarded by mutex_
  std::size_t open_ = 0;              // connections; guarded by mutex_
  std::set<std::string> publishers_;  // of this session; guarded by mutex_
  std::uint64_t ended_ = 0;           // sessions; guarded by mutex_
  ProcessWatch watch_{[this](const std::string& address) { DropAll(address); }};
};

}  // namespace layercast
