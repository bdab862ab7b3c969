#include "cli/end_signal.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "src/base/log.h"

namespace layercast::cli {
namespace {

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// Blocks the signals, so that they wait in the descriptor instead of ending the process.
int OpenBlocked(const sigset_t& signals) {
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

EndSignal::EndSignal() : signals_(OpenBlocked(EndSignals())) {}

void EndSignal::Wait() { WaitFor(-1); }

bool EndSignal::WaitOr(const WakeUp& other) { return WaitFor(other.fd()); }

bool EndSignal::WaitFor(int other_fd) {
  while (true) {
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {other_fd, POLLIN, 0}};  // poll ignores a negative descriptor
    ::poll(fds, 2, -1);
    signalfd_siginfo signal = {};
    if (::read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
      log::info("ending: {}", signal.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
      return true;
    }
    if (fds[1].revents != 0) return false;
  }
}

}  // namespace layercast::cli
