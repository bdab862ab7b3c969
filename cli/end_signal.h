// SIGINT and SIGTERM as an event that main waits for. Used by the subcommands that run on.
#pragma once

#include "src/base/unique_fd.h"
#include "src/base/wake_up.h"

namespace layercast::cli {

// Resource; made before any other thread, so that all of them leave the signals to it.
class EndSignal {
 public:
  EndSignal();
  // Until one of the two arrives; at once if it has already.
  void Wait();
  // The same, or until `other` rings. True: a signal has arrived.
  bool WaitOr(const WakeUp& other);

 private:
  bool WaitFor(int other_fd);

  UniqueFd signals_;
};

}  // namespace layercast::cli
