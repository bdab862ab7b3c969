// Two phases over all ranks: stage everywhere, then commit everywhere between two forward steps, or nowhere. Holds what
// the engine is: its state, its version, its last report.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/server/generator.h"
#include "engine_side/server/held_reload.h"
#include "engine_side/server/rank_commit.h"
#include "engine_side/server/rank_group.h"
#include "layercast/version.h"

namespace layercast {

// Resource; Reload is for one thread at a time, Status for any.
class Reloader {
 public:
  Reloader(RankGroup& ranks, Generator& generator, std::string default_pause_mode);

  // {"ok", "version", "previous", "report", "error"}: never throws for what the world did; the engine then serves what
  // it served, or is torn where its commit policy allows that. `held`: goes on from step to step when it is told to.
  Json Reload(const Json& params, HeldReload* held = nullptr);
  // {"state", "version", "torn", "commit", "ranks", "channel", "last_report", "last_error"}
  Json Status() const;
  std::optional<Version> version() const;
  // The ranks' memory, and with it what was served, is gone: nothing is answered until a whole version lands. For any
  // thread.
  void LoseWeights();

 private:
  // Of which versions the ranks' memory may hold parts; without `to`: of none, it is new.
  struct NotWhole {
    std::optional<Version> from;
    std::optional<Version> to;
  };

  void Stage(const Json& params, Deadline deadline);
  void Hold(HeldReload& held, HeldReload::Word next, Deadline deadline);
  void DropStaged();
  void Commit(PauseMode mode, HeldReload* held, Deadline deadline);
  void KeepOrigin(const Json& params);
  Version CommitOnRanks(Deadline deadline);
  // `before`: what was served, whole, before the version that is now.
  Json Verify(const std::optional<Version>& before);
  // Reports of all ranks, by rank, behind what they had told before.
  void KeepWhatWasStaged(std::vector<Json>& later) const;
  std::vector<std::string> ServedDigests() const;

  void StartLostRanks();
  void Enter(const std::string& state);
  void Serve(const std::optional<Version>& expected, const Version& version);
  bool ServesOrIsTorn() const;
  std::optional<Version> LastWholeVersion() const;
  void Tear(const std::optional<Version>& from, const Version& to, const std::string& why);
  void ServeOldVersionAgain();

  RankGroup& ranks_;
  Generator& generator_;
  const std::string default_pause_mode_;
  RankCommit commit_;

  // Of the reloading thread, and of the generating one while it runs a commit for it.
  std::uint64_t attempt_ = 0;
  Json origin_;                // params of the last path that was committed
  bool own_versions_ = false;  // of the ranks, in what is being loaded
  std::vector<Json> reports_;  // the latest of the reload at hand, by rank
  Json report_;                // the same, merged

  mutable std::mutex mutex_;
  std::string state_ = "loading";      // guarded by mutex_
  std::optional<Version> version_;     // guarded by mutex_; empty while torn
  std::optional<NotWhole> torn_;       // guarded by mutex_
  Json rank_digests_ = Json::array();  // guarded by mutex_
  Json last_report_;                   // guarded by mutex_
  Json last_error_;                    // guarded by mutex_
};

}  // namespace layercast
