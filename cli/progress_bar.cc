#include "cli/progress_bar.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

namespace layercast::cli {
namespace {

constexpr int kWidth = 40;

class WatchedWalk final : public WeightsIterator {
 public:
  WatchedWalk(std::unique_ptr<WeightsIterator> walk, std::uint64_t total, ProgressBar& bar)
      : walk_(std::move(walk)), total_(total), bar_(bar) {}

  std::optional<NamedTensor> Next() override {
    std::optional<NamedTensor> tensor = walk_->Next();
    if (tensor) bar_.Show(bytes_ += static_cast<std::uint64_t>(tensor->tensor.num_bytes()), total_);
    return tensor;
  }

 private:
  const std::unique_ptr<WeightsIterator> walk_;
  const std::uint64_t total_;
  ProgressBar& bar_;
  std::uint64_t bytes_ = 0;
};

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
  std::uint64_t total = 0;
  for (const TensorSpec& spec : weights.specs) total += static_cast<std::uint64_t>(spec.num_bytes());
  weights.walk = [walk = std::move(weights.walk), total, &bar](std::span<const std::string> order) {
    return std::make_unique<WatchedWalk>(walk(order), total, bar);
  };
  return weights;
}

}  // namespace layercast::cli
