// Shows how far a command has got with its bytes: one line on standard error, which is redrawn, and wiped at the end.
// If standard error is not a terminal, nothing is drawn.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "layercast/publisher.h"

namespace layercast::cli {

// Resource; thread-safe.
class ProgressBar {
 public:
  // `what` stands before the bar: "loading". If it is not `wanted` (with --json, say), nothing is drawn.
  ProgressBar(std::string what, bool wanted);
  ~ProgressBar() { End(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(std::uint64_t bytes, std::uint64_t bytes_total);
  // Wipes the line. From then on nothing is drawn.
  void End();

 private:
  const std::string what_;
  std::mutex mutex_;
  bool drawing_;      // guarded by mutex_
  int percent_ = -1;  // what was drawn last; guarded by mutex_
};

// The same weights, but their walks show their progress on the bar. The bar outlives them.
Weights WithProgress(Weights weights, ProgressBar& bar);

}  // namespace layercast::cli
