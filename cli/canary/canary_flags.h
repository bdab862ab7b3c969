// `layercast reload --canary`: some engines take the version first, on trial, until a command or somebody else has
// judged it. Used by `reload`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/terminal/output.h"
#include "layercast/controller.h"
#include "layercast/keys/key_options.h"

namespace layercast::cli {

// The options, and what they make of a reload. Value.
class CanaryFlags {
 public:
  void Declare(CLI::App& app);
  bool given() const { return !canaries_.empty(); }
  // Reloads the canaries, has them judged, and promotes the version or has them go back: also if a signal ends the
  // program. Prints what came of it, and throws why the version was not promoted. Must be called before any other
  // thread is started.
  void Run(Output& output, const std::vector<std::string>& engines, const KeyOptions& keys,
           const ReloadRequest& reload) const;

 private:
  std::vector<std::string> canaries_;
  std::string check_;
  std::string prompts_;  // a file
  double max_difference_ = 0;
  bool wait_ = false;
  double trial_ = 300;
};

}  // namespace layercast::cli
