// Calls that every rank answers with the report of a reload, also where it failed or died.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine_side/server/rank_group.h"
#include "layercast/error.h"

namespace layercast {

// A rank gives up so much before its parent does, and can then say whom it waited for.
inline constexpr std::chrono::milliseconds kAnswerTime{2'000};

struct RankReports {
  std::vector<Json> reports;  // by rank; those of lost ranks, with what they had said before, come last
  // The one that came first, but for kCancelled: that is of a rank that gave up because another one had failed.
  std::optional<Error> error;
};

// `method` answers {"report"}, or {"report", "error"}. `attempt`: of the reload, where the ranks receive; then all
// others give it up as soon as one has failed.
RankReports AskForReports(RankGroup& ranks, const std::string& method, const Json& params, Deadline deadline,
                          std::optional<std::uint64_t> attempt = std::nullopt);

// Makes it an error that the ranks took different versions, unless each names its own (RanksNameTheirOwn).
void ExpectOneVersion(RankReports& reports, bool own_versions);

// A rank's report of a version that it has staged, with what it says of the same version later. A process that was
// started in between has the staged bytes and not how they came: that stays as the one before it had told.
Json WithLater(const Json& staged, const Json& later);

// One report of the ranks': sums of bytes and layers, the slowest rank's times, everybody's channels and episodes.
Json MergeReports(const std::vector<Json>& reports);

}  // namespace layercast
