// A receiver's mappings, kept between connections: a publisher uses its segments again for the next version, and
// mapping a gigabyte anew costs its page faults again. What a process offered that has ended goes at once. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/transport/process_watch.h"
#include "src/transport/shm/memfd.h"

namespace layercast::shm_channel {

class SegmentCache {
 public:
  // A connection to `address` begins: mappings of other publishers that nobody uses go.
  void Begin(const std::string& address);
  // It is this one.
  void Watch(const std::string& address, int socket) { watch_.Watch(address, socket); }
  // Ends one: mappings that nobody uses, and that the last few connections did not use, go.
  void End();
  // The mapping of this segment, a new one if need be. Throws kCorrupt on a file that is no sealed segment. Shared by
  // the cache and by the connections that handed out views into it.
  std::shared_ptr<const Mapping> Map(const std::string& address, const UniqueFd& fd);
  std::size_t size() const;

 private:
  // Connections keep what they use until they end.
  void DropAll(const std::string& address);

  struct Entry {
    std::shared_ptr<const Mapping> mapping;
    std::string address;
    std::uint64_t used = 0;  // number of connections that had ended by then
  };
  mutable std::mutex mutex_;
  std::map<FileIdentity, Entry> entries_;  // guarded by mutex_; an inode number is not used again while it is mapped
  std::uint64_t ended_ = 0;                // guarded by mutex_
  ProcessWatch watch_{[this](const std::string& address) { DropAll(address); }};
};

}  // namespace layercast::shm_channel
