#include "cli/end_signal.h"

#include <csignal>

#include "src/base/log.h"

namespace layercast::cli {

EndSignal::EndSignal() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
}

void EndSignal::Wait() {
  int signal = 0;
  while (sigwait(&signals_, &signal) != 0) {
  }
  log::info("ending: {}", signal == SIGINT ? "SIGINT" : "SIGTERM");
}

}  // namespace layercast::cli
