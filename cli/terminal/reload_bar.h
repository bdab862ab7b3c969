// What a bar shows of reloads: of one engine, or of several together. Used by the subcommands that reload and that
// load.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/terminal/bar_line.h"
#include "layercast/progress.h"
#include "src/control/json_forms.h"

namespace layercast::cli {

// `engines` is indexed by engine; one of which nothing was heard yet has no ranks. With several engines, the slowest of
// all ranks is said with its engine.
BarState ReloadBarState(std::string what, const std::vector<EngineProgress>& engines);

// Of an engine that loads its first weights, by its status.
BarState LoadingBarState(const Json& status);

// The last that each engine was heard to say. Resource; thread-safe.
class ReloadBoard {
 public:
  ReloadBoard(std::string what, std::size_t engines) : what_(std::move(what)), engines_(engines) {}

  void Note(const EngineProgress& progress) {
    const std::lock_guard lock(mutex_);
    engines_.at(progress.engine) = progress;
  }
  BarState State() const {
    const std::lock_guard lock(mutex_);
    return ReloadBarState(what_, engines_);
  }

 private:
  const std::string what_;
  mutable std::mutex mutex_;
  std::vector<EngineProgress> engines_;  // guarded by mutex_
};

}  // namespace layercast::cli
