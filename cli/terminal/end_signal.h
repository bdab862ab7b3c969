// SIGINT, SIGTERM and SIGHUP as an event that main waits for. Used by the subcommands that run until they are ended. Of
// a program that was started by nohup, SIGHUP is none.
#pragma once

#include <chrono>

#include "src/base/unique_fd.h"
#include "src/net/wake_up.h"

namespace layercast::cli {

// Resource. Must be made before any other thread, so that all threads leave the signals to it.
class EndSignal {
 public:
  EndSignal();
  // Waits until one of the signals arrives. Returns at once if one has already.
  void Wait();
  // Waits until a signal arrives or `other` rings. Returns true if a signal has arrived.
  bool WaitOr(const WakeUp& other);
  // Waits until a signal arrives, something can be read from `fd`, or the time has passed. Returns true if a signal has
  // arrived.
  bool WaitOr(int fd, std::chrono::milliseconds time);
  // Waits until a signal arrives or the time has passed. Returns true if a signal has arrived.
  bool WaitUpTo(std::chrono::milliseconds time);

 private:
  bool WaitFor(int other_fd, int milliseconds = -1);

  UniqueFd signals_;
};

}  // namespace layercast::cli
