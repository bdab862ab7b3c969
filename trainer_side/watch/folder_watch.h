// Finds the checkpoints that a trainer saves in a folder of its run, once each is there whole. Used by `layercast
// publish
// --watch`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// The step in the name of a checkpoint's folder: "checkpoint-40", "step_40", "global_step40", "40". nullopt: it is
// none.
std::optional<std::uint64_t> StepOfFolder(std::string_view name);

// What a folder's files look like without being read: their names, sizes and times. Empty: there is no such folder.
std::string FingerprintOf(const std::string& folder);

// Value.
struct FoundCheckpoint {
  std::string path;
  std::uint64_t step = 0;
  std::string fingerprint;
  bool again = false;  // the folder was found before, and has been written anew
};

// Resource; one thread only. Nothing is read of a checkpoint but its headers.
class FolderWatch {
 public:
  using Clock = std::chrono::steady_clock;
  // A folder counts as whole if its index, headers and files agree, and if it has a file STABLE or nothing about its
  // files has changed for `quiet`. `now` is the clock.
  FolderWatch(std::string parent, Clock::duration quiet, std::function<Clock::time_point()> now = Clock::now);

  // Looks once: what has become whole since the last look, by step. Throws kNotFound if the parent cannot be read.
  std::vector<FoundCheckpoint> Look();

 private:
  struct Seen {
    std::string fingerprint;
    Clock::time_point since;  // when it was first seen so
    bool judged = false;      // found whole, or found wanting, as it is
    bool found = false;       // was whole at some time
  };

  bool IsWhole(const std::string& path, Seen& seen) const;

  const std::string parent_;
  const Clock::duration quiet_;
  const std::function<Clock::time_point()> now_;
  std::map<std::string, Seen> seen_;  // by path
};

}  // namespace layercast
