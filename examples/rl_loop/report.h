// What people see of the loop: a progress line while it runs, and a table and report.json at the end.
#pragma once

#include <filesystem>
#include <string>

#include "examples/rl_loop/history.h"

namespace rl_loop {

// A progress bar on standard error: redrawn in place on a terminal; elsewhere it is a line now and then.
class ProgressBar {
 public:
  ProgressBar(std::string title, int steps);
  void Show(const RunHistory& history);

 private:
  std::string title_;
  int steps_;
  bool terminal_;
};

// A table of about a dozen steps of the run: reward, entropy, the gap between the policy's and the engine's
// log-probabilities, and each sync's times.
std::string Table(const RunHistory& history);

// Writes the figures of both runs and of every step, which examples/rl_loop/plot.py draws.
void WriteReport(const RunHistory& synced, const RunHistory& unsynced, const std::filesystem::path& file);

}  // namespace rl_loop
