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

// A table of about a dozen steps of each run that syncs: reward, entropy, the gap between the policy's and the engine's
// log-probabilities, and each sync's times.
std::string Table(const Runs& runs);

// The rewards of all runs, and what one sync takes of all weights and of the adapter.
std::string Summary(const Runs& runs);

// Writes the figures of all runs and of every step, which examples/rl_loop/plot.py draws.
void WriteReport(const Runs& runs, const std::filesystem::path& file);

}  // namespace rl_loop
