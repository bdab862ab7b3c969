// Publishes the checkpoints that a trainer saves, in the order of their steps. Used by `layercast publish --watch`.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "layercast/publisher.h"
#include "trainer_side/watch/folder_watch.h"

namespace layercast {

// Resource; one thread only.
class WatchedRun {
 public:
  struct Options {
    std::string parent;
    std::string lineage;
    std::string run;  // PublishOptions::run; a run that is resumed gets a name of its own behind it
    std::size_t retained_versions = 2;
    std::chrono::milliseconds quiet{2000};
    std::function<std::optional<Noise>(std::uint64_t step)> noise{};  // of each version; empty: none
  };
  // `publisher` outlives it.
  WatchedRun(Publisher& publisher, const Options& options,
             std::function<FolderWatch::Clock::time_point()> now = FolderWatch::Clock::now);

  // Looks once, and publishes what has become whole: of what is there already, the newest that are kept anyway. A
  // checkpoint that cannot be read is told of in the log, and looked at again when it changes. Throws what
  // FolderWatch::Look throws.
  void Look();

 private:
  void Publish(const FoundCheckpoint& found);
  bool ResumesRun(const FoundCheckpoint& found);
  std::string ResumedName() const;  // without its number

  Publisher& publisher_;
  const Options options_;
  FolderWatch watch_;
  std::string run_;  // the latest; empty: not named
  int resumed_ = 0;  // how often
  std::optional<std::uint64_t> last_step_;
};

}  // namespace layercast
