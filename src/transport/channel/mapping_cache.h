// A receiver's mappings of publishers' segments, kept between sessions: a publisher uses its segments again for the
// next version, and mapping one anew costs milliseconds, or all of its page faults again. Mappings of a process that
// has ended are dropped at once. Used by shm and cuda_ipc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "src/net/process_watch.h"

namespace layercast {

// Resource; thread-safe. `Key` identifies a segment among all that a receiver sees. What counts as a session here is
// the time from the first open connection to the end of the last one: a session's connections to its publishers are all
// open at the same time. Measuring a channel before it is chosen counts as a session of its own.
template <typename Key, typename Mapping>
class MappingCache {
 public:
  // To be called when a connection to the publisher at `address` begins; `socket` is the connection's.
  void Begin(const std::string& address, int socket) {
    watch_.Watch(address, socket);
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) publishers_.clear();
    publishers_.insert(address);
  }
  // To be called when a connection ends. The last one of a session drops the mappings of publishers to which the
  // session had no connection, and those that the last few sessions did not use.
  void End() {
    const std::lock_guard lock(mutex_);
    if (--open_ != 0) return;
    ++ended_;
    std::erase_if(kept_, [&](const auto& entry) {
      const bool wanted = publishers_.contains(entry.second.address) && entry.second.used + kKeptSessions >= ended_;
      return !wanted && entry.second.mapping.use_count() == 1;
    });
  }
  // The mapping of a segment of the publisher at `address`. If it is not in the cache, `map` makes it, and may throw.
  // The mapping is owned by the cache and by the connections that use it.
  template <typename Map>
  std::shared_ptr<const Mapping> Get(const Key& key, const std::string& address, const Map& map) {
    const std::lock_guard lock(mutex_);
    auto found = kept_.find(key);
    if (found == kept_.end()) found = kept_.emplace(key, Kept{map(), address}).first;
    found->second.used = ended_;
    return found->second.mapping;
  }
  // Drops the mapping of a segment that its publisher will not use again. Connections keep what they use until they
  // end.
  void Drop(const Key& key) {
    const std::lock_guard lock(mutex_);
    kept_.erase(key);
  }
  // Drops all mappings of a publisher that may be gone, since they would keep its memory. Connections keep what they
  // use until they end.
  void DropAll(const std::string& address) {
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [&](const auto& entry) { return entry.second.address == address; });
  }
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return kept_.size();
  }

 private:
  // A publisher that keeps two versions uses a segment again in every second or third session.
  static constexpr std::uint64_t kKeptSessions = 4;

  struct Kept {
    std::shared_ptr<const Mapping> mapping;
    std::string address;
    std::uint64_t used = 0;  // how many sessions had ended when it was last used
  };
  mutable std::mutex mutex_;
  std::map<Key, Kept> kept_;          // guarded by mutex_
  std::size_t open_ = 0;              // connections; guarded by mutex_
  std::set<std::string> publishers_;  // of this session; guarded by mutex_
  std::uint64_t ended_ = 0;           // sessions; guarded by mutex_
  ProcessWatch watch_{[this](const std::string& address) { DropAll(address); }};
};

}  // namespace layercast
