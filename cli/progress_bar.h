// How far a command has got with its bytes, for whoever looks at a terminal: one line of standard error, drawn over and
// wiped in the end. Standard error that is no terminal gets nothing.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "layercast/publisher.h"

namespace layercast::cli {

// Resource; thread-safe.
class ProgressBar {
 public:
  // `what` stands before the bar: "loading". Not `wanted` (with --json, say): nothing is drawn.
  ProgressBar(std::string what, bool wanted);
  ~ProgressBar() { End(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(std::uint64_t bytes, std::uint64_t bytes_total);
  // Wipes the line; what is shown from now on is not drawn.
  void End();

 private:
  const std::string what_;
  std::mutex mutex_;
  bool drawing_;      // guarded by mutex_
  int percent_ = -1;  // drawn last; guarded by mutex_
};

// The same weights, whose walks show how far they are. The bar outlives them.
Weights WithProgress(Weights weights, ProgressBar& bar);

}  // namespace layercast::cli
