// A receiver's mappings of publishers' segments, kept between connections: a publisher uses a segment again for the
// next version, and to map one takes milliseconds. What a process offered that has ended goes at once. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "src/transport/cuda_ipc/driver.h"
#include "src/transport/process_watch.h"

namespace layercast::cuda_ipc_channel {

// Shared by the cache and by connections, which copy from it.
using Mapping = std::shared_ptr<const MappedSegment>;

class Mappings {
 public:
  // A connection to `address` begins: mappings of other publishers that nobody uses go.
  void Begin(const std::string& address);
  // It is this one.
  void Watch(const std::string& address, int socket) { watch_.Watch(address, socket); }
  // The mapping of this segment; where there is none, what `map` makes.
  Mapping Get(const std::string& address, std::uint32_t number, const std::function<Mapping()>& map);
  // The publisher will not use it again.
  void Drop(const std::string& address, std::uint32_t number);
  // Nor any of its: it may be gone, and mappings would keep its memory.
  void DropAll(const std::string& address);
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::uint32_t>, Mapping> kept_;  // guarded by mutex_
  ProcessWatch watch_{[this](const std::string& address) { DropAll(address); }};
};

}  // namespace layercast::cuda_ipc_channel
