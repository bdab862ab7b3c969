// One reload over all ranks of an engine: all stage the version, then all commit it or none, as far as the commit
// policy can promise that. The reloader makes one for each reload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/server/group/rank_group.h"
#include "engine_side/server/traces/sync_trace.h"
#include "layercast/error.h"

namespace layercast {

// Resource; for one thread at a time.
class RankReload {
 public:
  // `trace` outlives this.
  RankReload(RankGroup& ranks, std::uint64_t attempt, SyncTrace& trace)
      : ranks_(ranks), attempt_(attempt), trace_(trace) {}

  // Has all ranks stage what `request` names. If one fails, the others give up, and all drop what they have. Throws its
  // error. `prepares`: the commit follows soon, so that ranks may do in the same round what Prepare asks of them.
  void Stage(Json request, bool prepares, Deadline deadline);
  // Throws if any rank refuses to commit what it has staged. Asks none again.
  void Prepare();
  // Commits on all ranks, while no forward pass runs. There is no way back once it has begun. `served` is the digest of
  // what each rank serves, or empty before anything is served. With `keep`, ranks that keep a previous version keep
  // what they serve now. Throws the error of the rank that failed first: the ranks are then torn(), or serve what they
  // did before.
  void Commit(const std::vector<std::string>& served, bool keep, Deadline deadline);
  // Whether the ranks hold neither the old version nor the new one.
  bool torn() const { return torn_; }
  // Drops what is staged, unless its commit has begun.
  void Drop();
  // Reads the served bytes back. Throws kCorrupt if they are no whole version.
  void Verify();

  // The ranks' latest reports, merged. Null before all ranks have answered, and if none of them got far enough to know
  // what was to be loaded.
  const Json& report() const { return report_; }
  // Of the report.
  Version version() const { return VersionFromJson(report_.at("version")); }
  // What the reports say of each rank, for the status.
  Json Digests() const;
  // Where what becomes of this reload is recorded.
  SyncTrace& trace() { return trace_; }

 private:
  struct Answers {
    std::vector<Json> reports;   // by rank; lost ranks come last, with what they last reported
    std::optional<Error> error;  // the Vote's reason, if that is no
    std::vector<Json> results;   // of the ranks that answered, by rank
  };
  Answers Ask(const std::string& method, const Json& params, Deadline deadline, bool receives);
  void ExpectOneVersion(Answers& answers) const;
  Answers CommitStaged(bool keep);
  Answers CommitLayerwise(Deadline deadline);
  bool RollBack(const std::vector<std::string>& served);
  bool TryRollBack(const std::vector<std::string>& served);
  void ReadBack(Deadline deadline);
  std::vector<Json> ReadBackInCommit() const;
  void KeepWhatWasStaged(std::vector<Json>& later) const;

  RankGroup& ranks_;
  const std::uint64_t attempt_;
  SyncTrace& trace_;
  bool own_versions_ = false;  // whether each rank names the version being loaded itself (RanksNameTheirOwn)
  bool prepared_ = false;
  bool begun_ = false;  // to commit
  bool torn_ = false;
  std::uint64_t committed_by_ = 0;  // generation of the ranks that answered the commit
  std::vector<Json> reports_;       // the latest of all ranks, by rank
  std::vector<Json> committed_;     // the ranks' answers to the commit, by rank
  Json report_;
};

}  // namespace layercast
