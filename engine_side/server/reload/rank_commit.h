// The second phase of a reload over all ranks of an engine: either all of them commit or none, as far as the commit
// policy can promise that. Used by the reloader while no forward pass runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine_side/server/group/rank_group.h"
#include "engine_side/server/reload/rank_reports.h"

namespace layercast {

// What all ranks hold after a commit that may have failed. Value.
struct RankCommitOutcome {
  RankReports ranks;
  bool torn = false;  // with an error: they hold neither the old version nor the new one
};

// Resource; one thread only.
class RankCommit {
 public:
  explicit RankCommit(RankGroup& ranks) : ranks_(ranks) {}

  // Commits on all ranks. Every rank must have staged the version, and none have refused in `prepare`. `served` is the
  // digest of what each rank serves, or empty before anything is served. `attempt` is the reload's. For `own_versions`
  // see ExpectOneVersion.
  RankCommitOutcome Run(std::uint64_t attempt, bool own_versions, const std::vector<std::string>& served,
                        Deadline deadline);

 private:
  RankCommitOutcome CommitStaged();
  RankCommitOutcome CommitLayerwise(std::uint64_t attempt, bool own_versions, const std::vector<std::string>& served,
                                    Deadline deadline);
  bool RollBack(const std::vector<std::string>& served);
  bool TryRollBack(const std::vector<std::string>& served);

  RankGroup& ranks_;
};

}  // namespace layercast
