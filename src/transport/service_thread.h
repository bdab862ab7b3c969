// The thread of an offering end, and the socket that it listens on for receivers.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "src/base/log.h"
#include "src/base/thread_name.h"
#include "src/transport/control_socket.h"
#include "src/transport/wake_fd.h"

namespace layercast {

// Resource: what `serve` uses outlives it.
class ServiceThread {
 public:
  // Until a stop is requested; `wake` then wakes it. Receivers know `key`.
  using Serve = std::function<void(UniqueFd listener, const Token& key, const std::stop_token& stop)>;

  // Listens at `bind_host`; "lc-CHANNEL" serves. Throws kInvalidArgument.
  ServiceThread(const std::string& channel, const std::string& bind_host, const WakeFd& wake, Serve serve)
      : wake_(wake) {
    ControlAddress address{.channel = channel, .key = RandomToken()};
    UniqueFd listener = Listen(bind_host, address);
    address_ = address.Text();
    thread_ = std::jthread([channel, key = address.key, serve = std::move(serve),
                            moved = std::move(listener)](const std::stop_token& stop) mutable {
      NameThisThread(("lc-" + channel).c_str());
      try {
        serve(std::move(moved), key, stop);
      } catch (const std::exception& error) {
        log::error("{}: the data channel ends: {}", channel, error.what());
      }
    });
  }
  ~ServiceThread() {
    thread_.request_stop();
    wake_.Wake();
    thread_.join();
  }
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  const std::string& address() const { return address_; }

 private:
  const WakeFd& wake_;
  std::string address_;
  std::jthread thread_;
};

}  // namespace layercast
