// Two phases over all ranks: stage everywhere, then commit everywhere between two forward steps, or nowhere. Holds what
// the engine is: its state, its version, its last report.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "engine_side/server/generator.h"
#include "engine_side/server/rank_group.h"
#include "layercast/error.h"
#include "layercast/version.h"

namespace layercast {

// Resource; Reload is for one thread at a time, Status for any.
class Reloader {
 public:
  Reloader(RankGroup& ranks, Generator& generator, std::string default_pause_mode);

  // {"ok", "version", "report", "error"}: never throws for what the world did; the engine then serves what it served.
  Json Reload(const Json& params);
  // {"state", "version", "ranks", "channel", "last_report", "last_error"}
  Json Status() const;
  std::optional<Version> version() const;

 private:
  struct Outcome {
    std::vector<Json> reports;  // by rank; of a failure: those that there are
    std::optional<Error> error;
  };
  Outcome Stage(const Json& params, Deadline deadline);
  void Commit(PauseMode mode, const Version& version, Deadline deadline);
  void CommitOnRanks(Deadline deadline);
  Json Verify(Deadline deadline);
  Json Merge(const std::vector<Json>& reports) const;
  void SetState(const std::string& state);

  RankGroup& ranks_;
  Generator& generator_;
  const std::string default_pause_mode_;
  std::uint64_t attempt_ = 0;  // of the reloading thread
  Json origin_;                // params of the last path that was loaded; of the reloading thread

  mutable std::mutex mutex_;
  std::string state_ = "loading";      // guarded by mutex_
  std::optional<Version> version_;     // guarded by mutex_
  Json rank_digests_ = Json::array();  // guarded by mutex_
  Json last_report_;                   // guarded by mutex_
  Json last_error_;                    // guarded by mutex_
};

}  // namespace layercast
