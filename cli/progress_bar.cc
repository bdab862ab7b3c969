#include "cli/progress_bar.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "engine_side/reload/progress.h"

namespace layercast::cli {
namespace {

constexpr int kWidth = 40;

}  // namespace

ProgressBar::ProgressBar(std::string what, bool wanted)
    : what_(std::move(what)), drawing_(wanted && ::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::Show(std::uint64_t bytes, std::uint64_t bytes_total) {
  if (bytes_total == 0) return;
  const int percent = static_cast<int>(100.0 * static_cast<double>(bytes) / static_cast<double>(bytes_total));
  const std::lock_guard lock(mutex_);
  if (!drawing_ || percent == percent_) return;
  percent_ = percent;
  const std::string bar(static_cast<std::size_t>(kWidth * percent / 100), '#');
  std::fprintf(stderr, "\r%s [%-*s] %3d %% of %.1f MB", what_.c_str(), kWidth, bar.c_str(), percent,
               static_cast<double>(bytes_total) / 1e6);
  std::fflush(stderr);
}

void ProgressBar::End() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(drawing_, false) && percent_ >= 0) std::fputs("\r\x1b[K", stderr);
}

Weights WithProgress(Weights weights, ProgressBar& bar) {
  weights.walk =
      [walk = std::move(weights.walk), total = TotalBytes(weights.specs),
       say = SayProgress([&bar](std::uint64_t bytes, std::uint64_t bytes_total) { bar.Show(bytes, bytes_total); })](
          std::span<const std::string> order) { return std::make_unique<WatchedWalk>(walk(order), total, say); };
  return weights;
}

}  // namespace layercast::cli
