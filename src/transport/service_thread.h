// The thread of an offering end that serves its receivers.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "src/base/log.h"
#include "src/base/thread_clock.h"
#include "src/base/thread_name.h"
#include "src/transport/wake_fd.h"

namespace layercast {

// Resource: what `serve` uses outlives it.
class ServiceThread {
 public:
  // `serve` runs until a stop is requested; `wake` then wakes it. `name` is the thread's.
  ServiceThread(std::string channel, const char* name, const WakeFd& wake,
                std::function<void(const std::stop_token& stop)> serve)
      : wake_(wake),
        thread_([channel = std::move(channel), name, serve = std::move(serve)](const std::stop_token& stop) {
          NameThisThread(name);
          try {
            serve(stop);
          } catch (const std::exception& error) {
            log::error("{}: the data channel ends: {}", channel, error.what());
          }
        }) {}
  ~ServiceThread() {
    thread_.request_stop();
    wake_.Wake();
    thread_.join();
  }
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  double core_seconds() { return CoreSecondsOf(thread_); }

 private:
  const WakeFd& wake_;
  std::jthread thread_;
};

}  // namespace layercast
