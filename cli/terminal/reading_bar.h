// The progress bar of a subcommand that reads a checkpoint once, from beginning to end.
#pragma once

#include <atomic>
#include <cstdint>

#include "cli/terminal/progress_bar.h"

namespace layercast::cli {

// Resource; thread-safe.
class ReadingBar {
 public:
  explicit ReadingBar(std::uint64_t total) : total_(total) {}

  // So many bytes were read by now, in all.
  void Read(std::uint64_t bytes) { read_ = bytes; }
  void End() { bar_.End(); }

 private:
  const std::uint64_t total_;
  std::atomic<std::uint64_t> read_{0};
  ProgressBar bar_{[this] { return BarState{.what = "reading", .bytes = read_, .bytes_total = total_}; }};
};

}  // namespace layercast::cli
