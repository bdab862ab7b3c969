// Tells when the process of a publisher ends, even while there is no connection to it: the mappings that a receiver
// keeps of a publisher's memory would keep that memory alive for ever. Part of MappingCache.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "src/base/unique_fd.h"
#include "src/net/wake_up.h"

namespace layercast {

// Resource; thread-safe. Has a thread of its own ("lc-mappings") once there is something to watch.
class ProcessWatch {
 public:
  // `ended` is called once for each process that ends, with its address, on the thread of the watch.
  explicit ProcessWatch(std::function<void(const std::string& address)> ended) : ended_(std::move(ended)) {}
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  // Watches the process at the other end of `socket`, which serves at `address`. A process cannot be watched if its PID
  // namespace is not below that of this one; then nothing happens. Of many processes only the last ones are watched.
  void Watch(const std::string& address, int socket);

 private:
  struct Watched {
    std::string address;
    std::shared_ptr<const UniqueFd> process;  // readable once it has ended; second owner: the thread, while it polls
  };
  void Run(const std::stop_token& stop);
  void TellEnded();

  const std::function<void(const std::string&)> ended_;
  WakeUp wake_;
  std::mutex mutex_;
  std::deque<Watched> watched_;  // guarded by mutex_
  std::jthread thread_;          // started under mutex_
};

}  // namespace layercast
