#include "cli/terminal/end_signal.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "src/base/log.h"

namespace layercast::cli {
namespace {

// Whether the program was started to outlive its terminal (nohup). UCX takes SIGHUP for debugging as soon as it is
// loaded, and hides this; so it is found out before any library is initialized.
bool ignores_hang_up = false;

void FindOut(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  struct sigaction action {};
  ignores_hang_up = ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

__attribute__((section(".preinit_array"), used)) void (*const kFindOut)(int, char**, char**) = FindOut;

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  if (!ignores_hang_up) sigaddset(&signals, SIGHUP);  // a signal that is blocked waits, ignored or not
  return signals;
}

// Blocks the signals, so that they wait in the descriptor instead of ending the process.
int OpenBlocked(const sigset_t& signals) {
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

EndSignal::EndSignal() : signals_(OpenBlocked(EndSignals())) {
  if (ignores_hang_up) ::signal(SIGHUP, SIG_IGN);
}

void EndSignal::Wait() { WaitFor(-1); }

bool EndSignal::WaitOr(const WakeUp& other) { return WaitFor(other.fd()); }

bool EndSignal::WaitOr(int fd, std::chrono::milliseconds time) { return WaitFor(fd, static_cast<int>(time.count())); }

bool EndSignal::WaitUpTo(std::chrono::milliseconds time) { return WaitFor(-1, static_cast<int>(time.count())); }

bool EndSignal::WaitFor(int other_fd, int milliseconds) {
  while (true) {
    pollfd fds[] = {{signals_.get(), POLLIN, 0}, {other_fd, POLLIN, 0}};  // poll ignores a negative descriptor
    const int ready = ::poll(fds, 2, milliseconds);
    signalfd_siginfo signal = {};
    if (::read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
      log::info("ending: SIG{}", ::sigabbrev_np(static_cast<int>(signal.ssi_signo)));
      return true;
    }
    if (fds[1].revents != 0 || ready == 0) return false;
  }
}

}  // namespace layercast::cli
