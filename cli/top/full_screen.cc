#include "cli/top/full_screen.h"

#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

namespace layercast::cli {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // the second screen, without a cursor
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kBegin = "\x1b[?2026h\x1b[H";  // shows nothing until the end; the top left corner
constexpr std::string_view kEndOfLine = "\x1b[K";
constexpr std::string_view kEnd = "\x1b[J\x1b[?2026l";
constexpr int kCrashes[] = {SIGQUIT, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// A terminal that takes nothing more is gone, and SIGHUP says so.
void Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void LeaveAndCrash(int signal) {
  static_cast<void>(::write(STDOUT_FILENO, kLeave.data(), kLeave.size()) == 0);
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

int OpenResized() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

}  // namespace

bool StandardOutputIsTerminal() {
  if (::isatty(STDOUT_FILENO) != 1) return false;
  const char* const kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) != "dumb" && *kind != '\0';
}

FullScreen::FullScreen() : resized_(OpenResized()) {
  for (const int signal : kCrashes) std::signal(signal, LeaveAndCrash);
  std::signal(SIGTSTP, SIG_IGN);
  Write(kEnter);
}

FullScreen::~FullScreen() {
  Write(kLeave);
  std::signal(SIGTSTP, SIG_DFL);
  for (const int signal : kCrashes) std::signal(signal, SIG_DFL);
}

FullScreen::Size FullScreen::size() const {
  winsize window{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0) return {};
  return {window.ws_col, window.ws_row};
}

void FullScreen::Draw(const std::vector<std::string>& lines) {
  std::string picture(kBegin);
  const std::size_t shown = std::min(lines.size(), size().rows);
  for (std::size_t line = 0; line < shown; ++line) {
    if (line > 0) picture += "\r\n";
    picture += lines[line];
    picture += kEndOfLine;
  }
  picture += kEnd;
  Write(picture);
}

void FullScreen::TakeResize() {
  signalfd_siginfo signal{};
  while (::read(resized_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
  }
}

}  // namespace layercast::cli
