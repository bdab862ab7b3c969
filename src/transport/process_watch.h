// Tells when publishers' processes end, between connections too: what a receiver keeps mapped of one would keep that
// memory for ever. Part of MappingCache. Thread-safe; has a thread of its own ("lc-mappings")
// once there is something to watch.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "src/base/unique_fd.h"
#include "src/base/wake_up.h"

namespace layercast {

class ProcessWatch {
 public:
  // `ended` is told the address, once, on the watch's thread.
  explicit ProcessWatch(std::function<void(const std::string& address)> ended) : ended_(std::move(ended)) {}
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // The process at the other end of `socket` serves at `address`. One that cannot be watched, being in a PID namespace
  // that is not below ours, is not; of many only the last ones are.
  void Watch(const std::string& address, int socket);

 private:
  struct Watched {
    std::string address;
    UniqueFd process;  // readable once it has ended
  };
  void Run(const std::stop_token& stop);
  void TellEnded();

  const std::function<void(const std::string&)> ended_;
  WakeUp wake_;
  std::mutex mutex_;
  std::deque<Watched> watched_;  // guarded by mutex_
  std::jthread thread_;          // begun under mutex_
};

}  // namespace layercast
