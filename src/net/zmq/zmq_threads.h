// Measures the CPU time of the threads that ZeroMQ runs for one context: most of the work of sending is done there.
// Used by publishers and the zmq channel.
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
  // To be made before the context has a socket: this names the context's threads, so that they can be told from others.
  explicit ZmqThreads(zmq::context_t& context);

  // CPU seconds that the threads have used so far; 0 if the system does not tell. The context must still exist.
  double core_seconds();

 private:
  void Find();

  const std::string prefix_;  // of the threads' names
  std::mutex mutex_;
  std::vector<clockid_t> clocks_;  // guarded by mutex_
};

}  // namespace layercast
