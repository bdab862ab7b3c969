// What people see of the loop: a progress line while it runs, a table and report.json at the end.
#pragma once

#include <filesystem>
#include <string>

#include "examples/rl_loop/history.h"

namespace rl_loop {

// A bar that is redrawn in place on a terminal; elsewhere a line now and then. To standard error.
class ProgressBar {
 public:
  ProgressBar(std::string title, int steps);
  void Show(const RunHistory& history);

 private:
  std::string title_;
  int steps_;
  bool terminal_;
};

// Reward, entropy, gap between the policy's and the engine's log-probabilities, and each sync's times: about a dozen
// steps of the run.
std::string Table(const RunHistory& history);

// The figures of both runs, and every step's (examples/rl_loop/plot.py draws them).
void WriteReport(const RunHistory& synced, const RunHistory& unsynced, const std::filesystem::path& file);

}  // namespace rl_loop
