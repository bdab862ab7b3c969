// Shows how far a command has got: one line at the end of standard error, which is redrawn, and wiped in the end. If
// standard error is no terminal, nothing is drawn, with --json or without. Lines of the log wipe it before they are
// written (src/base/log.h), and it is drawn again below them.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "cli/terminal/bar_line.h"
#include "cli/terminal/rate_meter.h"

namespace layercast::cli {

// Resource; thread-safe. A thread "lc-bar" draws, so that nobody who makes progress waits for the terminal.
class ProgressBar {
 public:
  // `look` is called on the bar's thread, until End returns. While it returns nothing, nothing is drawn.
  explicit ProgressBar(std::function<std::optional<BarState>()> look);
  ~ProgressBar() { End(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Whether there is a terminal to draw on.
  bool draws() const { return thread_.joinable(); }
  // Wipes the line. From then on nothing is drawn.
  void End();

 private:
  void Run(const std::stop_token& stop);
  void Draw(RateMeter::Clock::time_point now);

  const std::function<std::optional<BarState>()> look_;
  const RateMeter::Clock::time_point begin_ = RateMeter::Clock::now();
  RateMeter rate_;       // the thread's
  bool drawn_ = false;   // the thread's
  std::mutex ending_;    // held while the thread is joined
  std::jthread thread_;  // none where nothing is drawn
};

}  // namespace layercast::cli
