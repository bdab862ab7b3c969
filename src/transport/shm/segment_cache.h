// A receiver's mappings, kept between sessions: a publisher uses its segments again for the next version, and mapping a
// gigabyte anew costs its page faults again. What a process offered that has ended goes at once. Thread-safe.
//
// A session has a connection to each of its publishers, all open at the same time: it ends with the last of them. Where
// a channel is measured before it is chosen, that is one too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "src/transport/process_watch.h"
#include "src/transport/shm/memfd.h"

namespace layercast::shm_channel {

class SegmentCache {
 public:
  // A connection to `address` begins.
  void Begin(const std::string& address);
  // It is this one.
  void Watch(const std::string& address, int socket) { watch_.Watch(address, socket); }
  // Ends one. With the last of a session go mappings of publishers that it had no connection to, and those that the
  // last few sessions did not use.
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
    std::uint64_t used = 0;  // number of sessions that had ended by then
  };
  mutable std::mutex mutex_;
  std::map<FileIdentity, Entry> entries_;  // guarded by mutex_; an inode number is not used again while it is mapped
  std::size_t open_ = 0;                   // connections; guarded by mutex_
  std::set<std::string> publishers_;       // of this session; guarded by mutex_
  std::uint64_t ended_ = 0;                // sessions; guarded by mutex_
  ProcessWatch watch_{[this](const std::string& address) { DropAll(address); }};
};

}  // namespace layercast::shm_channel
