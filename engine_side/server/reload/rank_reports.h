// Calls that every rank answers with its report of a reload, and the merging of those reports. A rank that failed or
// died has a report too.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/server/group/rank_group.h"
#include "layercast/error.h"

namespace layercast {

struct RankReports {
  std::vector<Json> reports;  // by rank; lost ranks come last, with what they last reported
  // The error that came first. One that is kCancelled gives way to any other: it is of a rank that gave up because
  // another one had failed.
  std::optional<Error> error;
};

// Calls `method` on every rank, which answers {"report"} or {"report", "error"}. With the reload's `attempt`, which is
// for methods in which ranks receive, all other ranks give the attempt up as soon as one has failed.
RankReports AskForReports(RankGroup& ranks, const std::string& method, const Json& params, Deadline deadline,
                          std::optional<std::uint64_t> attempt = std::nullopt);

// Sets an error if the ranks took different versions, unless each names its own (RanksNameTheirOwn).
void ExpectOneVersion(RankReports& reports, bool own_versions);

// A rank's report of a version that it staged, updated by a later report of the same version. A process that was
// started in between has the staged bytes but does not know how they came; what the earlier process reported of that is
// kept.
Json WithLater(const Json& staged, const Json& later);

// Merges the ranks' reports into one: sums of bytes and layers, the slowest rank's times, and the channels and episodes
// of all ranks.
Json MergeReports(const std::vector<Json>& reports);

}  // namespace layercast
