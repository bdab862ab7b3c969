#include "engine_side/server/reload/rank_commit.h"

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/control/answer_time.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kCopyTimeout{120'000};
constexpr int kTries = 3;

// Trying again is of use only if what was staged outlives its process, which it does where the weights do.
int TriesOf(const RankGroup& ranks) { return ranks.weights_outlive_ranks() ? kTries : 1; }

}  // namespace

RankCommitOutcome RankCommit::Run(std::uint64_t attempt, bool own_versions, const std::vector<std::string>& served,
                                  Deadline deadline) {
  if (ranks_.commit_policy() == CommitPolicy::kStaged) return CommitStaged();
  return CommitLayerwise(attempt, own_versions, served, deadline);
}

// From the first rank's commit on there is no way back. What is staged survives its process, so a rank that fails in
// the middle does its copy again. Only if that fails too is the engine torn.
RankCommitOutcome RankCommit::CommitStaged() {
  RankCommitOutcome outcome;
  const int tries = TriesOf(ranks_);
  for (int attempt = 1; attempt <= tries; ++attempt) {
    const Deadline deadline = Deadline::After(kCopyTimeout);
    try {
      if (attempt > 1) {
        ranks_.RestartIfLost();
        ranks_.Call("adopt_staged", Json::object(), deadline);
      }
      outcome.ranks = AskForReports(ranks_, "commit", Json::object(), deadline);
    } catch (const Error& error) {
      outcome.ranks.error = error;
    }
    if (!outcome.ranks.error) return outcome;
    log::error("commit, try {} of {}: {}", attempt, tries, outcome.ranks.error->what());
  }
  outcome.torn = true;
  return outcome;
}

// Ranks receive and write at the same time. If one of them fails, the others take back what they wrote, if their policy
// allows that.
RankCommitOutcome RankCommit::CommitLayerwise(std::uint64_t attempt, bool own_versions,
                                              const std::vector<std::string>& served, Deadline deadline) {
  RankCommitOutcome outcome;
  const Json params = {{"timeout_ms", TimeWithin(deadline.Remaining()).count()}};
  outcome.ranks = AskForReports(ranks_, "commit", params, deadline, attempt);
  ExpectOneVersion(outcome.ranks, own_versions);
  if (!outcome.ranks.error) return outcome;
  log::error("commit: {}", outcome.ranks.error->what());
  outcome.torn = !RollBack(served);
  return outcome;
}

bool RankCommit::RollBack(const std::vector<std::string>& served) {
  for (int attempt = 1; attempt <= kTries; ++attempt) {
    try {
      return TryRollBack(served);
    } catch (const Error& error) {
      log::error("rolling back, try {} of {}: {}", attempt, kTries, error.what());
    }
  }
  return false;
}

// Rolls all ranks back. Does not rely on a rank's word that it is whole: reads back what it serves, and compares.
bool RankCommit::TryRollBack(const std::vector<std::string>& served) {
  ranks_.RestartIfLost();
  const Deadline deadline = Deadline::After(kCopyTimeout);
  bool whole = true;
  for (const Json& answer : ranks_.Call("roll_back", Json::object(), deadline)) {
    whole = whole && answer.at("whole").get<bool>();
  }
  if (!whole || served.empty()) return whole;
  const std::vector<Json> now = ranks_.Call("digests", Json::object(), deadline);
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    const auto digest = now[rank].at("served_digest").get<std::string>();
    if (digest == served.at(rank)) continue;
    log::error("rank {} was rolled back, but serves other bytes: digest expected {}, got {}", rank, served[rank],
               digest);
    return false;
  }
  return true;
}

}  // namespace layercast
