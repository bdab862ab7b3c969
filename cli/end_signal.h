// SIGINT and SIGTERM as an event that main waits for. Used by the subcommands that run on.
#pragma once

#include <csignal>

namespace layercast::cli {

// Resource; made before any other thread, so that all of them leave the signals to Wait.
class EndSignal {
 public:
  EndSignal();
  // Until one of the two arrives; at once if it has already.
  void Wait();

 private:
  sigset_t signals_ = {};
};

}  // namespace layercast::cli
