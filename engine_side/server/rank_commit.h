// The second phase of a reload over all ranks of an engine: all of them commit, or none, as far as the commit policy
// can promise that. Used by the reloader while no forward pass runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine_side/server/rank_group.h"
#include "engine_side/server/rank_reports.h"

namespace layercast {

// What all ranks together hold now, after a commit that may have failed.
struct RankCommitOutcome {
  RankReports ranks;
  bool torn = false;  // where there is an error: neither the old version nor the new one
};

// Resource; one thread only.
class RankCommit {
 public:
  explicit RankCommit(RankGroup& ranks) : ranks_(ranks) {}

  // Every rank has staged the version, and none has refused in `prepare`. `served`: the digest of what each rank
  // serves; empty before anything was served. `attempt`: of the reload. `own_versions`: as in ExpectOneVersion.
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
