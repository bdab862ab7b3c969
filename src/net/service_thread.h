// The thread of an offering end that serves its receivers.
#pragma once

#include <sys/prctl.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "src/base/log.h"
#include "src/base/threads/thread_clock.h"
#include "src/base/threads/thread_name.h"
#include "src/net/wake_up.h"

namespace layercast {

// How much longer than requested the kernel may let a service thread sleep. The kernel's default of 50 us would double
// kDeviceTick.
inline constexpr unsigned long kTimerSlackNs = 1000;

// Resource. What `serve` uses must outlive it.
class ServiceThread {
 public:
  // Runs `serve` on a thread called `name`, until the destructor requests a stop and wakes it by `wake`.
  ServiceThread(std::string channel, const char* name, const WakeUp& wake,
                std::function<void(const std::stop_token& stop)> serve)
      : wake_(wake),
        thread_([channel = std::move(channel), name, serve = std::move(serve)](const std::stop_token& stop) {
          NameThisThread(name);
          ::prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
          try {
            serve(stop);
          } catch (const std::exception& error) {
            log::error("{}: the data channel ends: {}", channel, error.what());
          }
        }) {}
  ~ServiceThread() {
    thread_.request_stop();
    wake_.Ring();
    thread_.join();
  }
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  double core_seconds() { return CoreSecondsOf(thread_); }

 private:
  const WakeUp& wake_;
  std::jthread thread_;
};

}  // namespace layercast
