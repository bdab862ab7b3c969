#include "cli/terminal/progress_bar.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "src/base/log.h"
#include "src/base/terminal.h"
#include "src/base/threads/thread_name.h"

namespace layercast::cli {
namespace {

constexpr std::chrono::milliseconds kPeriod{200};
constexpr std::size_t kUsualWidth = 80;  // of a terminal that does not say

std::size_t Width() {
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualWidth;
  return size.ws_col;
}

// In one go, so that nothing that others write gets in between.
void Write(const std::string& text) { static_cast<void>(::write(STDERR_FILENO, text.data(), text.size()) == 0); }

// Signals are for the threads that wait for them.
void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

ProgressBar::ProgressBar(std::function<std::optional<BarState>()> look) : look_(std::move(look)) {
  if (!StandardErrorIsTerminal()) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  } catch (const std::system_error& error) {
    log::debug("no progress bar: {}", error.what());
  }
}

void ProgressBar::End() {
  const std::lock_guard lock(ending_);
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void ProgressBar::Run(const std::stop_token& stop) {
  NameThisThread("lc-bar");
  BlockSignals();
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  do {
    try {
      Draw(RateMeter::Clock::now());
    } catch (const std::exception& error) {
      log::debug("{}", error.what());
    }
  } while (!never.wait_for(lock, stop, kPeriod, [&stop] { return stop.stop_requested(); }));
  if (drawn_) Write(std::string(kWipeLine));
}

// The cursor stays at the beginning of the line: whatever is written next, by whichever process, begins there.
void ProgressBar::Draw(RateMeter::Clock::time_point now) {
  const std::optional<BarState> state = look_();
  if (!state) return;
  rate_.Note(now, state->bytes);
  const BarTimes times{.bytes_per_second = rate_.bytes_per_second(),
                       .elapsed = std::chrono::duration_cast<std::chrono::seconds>(now - begin_)};
  Write(std::string(kWipeLine) + BarLine(*state, times, Width()) + "\r");
  drawn_ = true;
}

}  // namespace layercast::cli
