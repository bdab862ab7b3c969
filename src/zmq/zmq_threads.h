// The threads that ZeroMQ runs for one context: most of what sending costs is theirs.
#pragma once

#include <time.h>

#include <mutex>
#include <string>
#include <vector>

#include <zmq.hpp>

namespace layercast {

// Thread-safe.
class ZmqThreads {
 public:
  // Before the context has a socket: it names its threads, so that they can be told from others'.
  explicit ZmqThreads(zmq::context_t& context);

  // What they have computed so far; 0 where the system does not tell. The context lives.
  double core_seconds();

 private:
  void Find();

  const std::string prefix_;  // of their names
  std::mutex mutex_;
  std::vector<clockid_t> clocks_;  // guarded by mutex_
};

}  // namespace layercast
