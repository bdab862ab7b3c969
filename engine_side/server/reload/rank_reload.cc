#include "engine_side/server/reload/rank_reload.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/reload/rank_reports.h"
#include "layercast/report.h"
#include "src/base/log.h"
#include "src/control/answer_time.h"
#include "src/control/vote.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kCopyTimeout{120'000};
constexpr int kTries = 3;

// Trying again is of use only if what was staged outlives its process, which it does where the weights do.
int TriesOf(const RankGroup& ranks) { return ranks.weights_outlive_ranks() ? kTries : 1; }

// Whether no rank got far enough to know what was to be loaded.
bool NothingBegan(const Json& report) {
  return VersionFromJson(report.at("version")) == Version() && report.at("bytes_total") == 0;
}

// The report in place of one that a lost rank could not make: an empty one, with its last progress.
Json LastWords(const Json& progress) {
  Json report = Json::parse(ReloadReport().ToJson());
  for (const char* known : {"bytes", "bytes_total"}) {
    if (progress.is_object()) report[known] = progress.at(known);
  }
  return report;
}

// The error in a rank's answer, if there is one.
std::optional<Error> ErrorOf(std::size_t rank, const RankAnswer& answer) {
  if (answer.error) return answer.error;
  if (!answer.result.contains("error")) return std::nullopt;
  return ErrorFromJson(answer.result["error"], "rank " + std::to_string(rank) + ": ");
}

}  // namespace

// Ranks that receive while they commit prepare by opening the session with the publisher again, which is closed as soon
// as they have staged: that comes last.
void RankReload::Stage(Json request, bool prepares, Deadline deadline) {
  const TraceScope span(trace_.Lane("stage", TraceKind::kCall));
  request["prepare"] = prepares && !WritesLayers(ranks_.commit_policy());
  request["attempt"] = attempt_;
  request["trace_spans"] = trace_.SpansOfRank(ranks_);
  request["timeout_ms"] = TimeWithin(deadline.Remaining()).count();
  own_versions_ = RanksNameTheirOwn(request);
  Answers staged = Ask("stage", request, deadline, /*receives=*/true);
  ExpectOneVersion(staged);
  report_ = MergeReports(staged.reports);
  reports_ = std::move(staged.reports);
  prepared_ = std::ranges::all_of(staged.results, [](const Json& result) { return result.value("prepared", false); });
  if (!staged.error) return;
  if (NothingBegan(report_)) report_ = nullptr;
  Drop();
  throw Error(*staged.error);
}

void RankReload::Prepare() {
  if (std::exchange(prepared_, true)) return;
  const TraceScope span(trace_.Lane("prepare", TraceKind::kCall));
  ranks_.Call("prepare", Json::object(), Deadline::After(kCopyTimeout));
}

// A rank that is still at work on what is staged, for instance because it waits for a publisher, gives that up first.
void RankReload::Drop() {
  if (begun_) return;
  ranks_.Cancel(attempt_);
  try {
    ranks_.Call("abort", Json::object(), Deadline::After(kCopyTimeout));
  } catch (const Error&) {  // a rank that is gone has nothing staged
  }
}

// Has every rank vote on whether all go on. It answers {"report"} or, with its no, {"report", "error"}. Where ranks
// receive, the first no has all others give the attempt up.
RankReload::Answers RankReload::Ask(const std::string& method, const Json& params, Deadline deadline, bool receives) {
  Vote vote(static_cast<std::size_t>(ranks_.parallel().engine_size()));
  const HearAnswer heard = [&](std::size_t rank, const RankAnswer& answer) {
    const std::optional<Error> error = ErrorOf(rank, answer);
    if (!error) return vote.Yes();
    if (vote.No(*error) && receives) ranks_.Cancel(attempt_);
  };
  std::vector<Json> reports;
  std::vector<Json> lost;
  std::vector<Json> results;
  const std::vector<RankAnswer> answers = ranks_.Try(method, params, deadline, heard);
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const RankAnswer& answer = answers[rank];
    Json report = answer.error ? LastWords(answer.progress) : answer.result.at("report");
    report["rank"] = rank;
    (answer.error ? lost : reports).push_back(std::move(report));
    if (!answer.error) results.push_back(answer.result);
  }
  std::ranges::move(lost, std::back_inserter(reports));
  return {std::move(reports), vote.why(), std::move(results)};
}

// Sets an error if the ranks took different versions, unless each names its own.
void RankReload::ExpectOneVersion(Answers& answers) const {
  for (const Json& report : answers.reports) {
    const Json& first = answers.reports.front();
    if (answers.error || own_versions_ || report["version"] == first["version"]) continue;
    answers.error.emplace(ErrorCode::kCorrupt, "the ranks took different versions: rank " + first["rank"].dump() + " " +
                                                   first["version"].dump() + ", rank " + report["rank"].dump() + " " +
                                                   report["version"].dump());
  }
}

void RankReload::Commit(const std::vector<std::string>& served, bool keep, Deadline deadline) {
  const TraceScope span(trace_.Lane("commit", TraceKind::kCall));
  begun_ = true;
  torn_ = true;  // until they are known not to be
  const bool from_staging = !WritesLayers(ranks_.commit_policy());
  const Json staged = report_.at("version");
  Answers committed = from_staging ? CommitStaged(keep) : CommitLayerwise(deadline);
  torn_ = committed.error && (from_staging || !RollBack(served));
  committed_by_ = ranks_.generation();
  if (!committed.error) KeepWhatWasStaged(committed.reports);
  if (!committed.reports.empty()) report_ = MergeReports(committed.reports);
  if (version() == Version()) report_["version"] = staged;  // all ranks are lost
  if (committed.error) throw Error(*committed.error);
  reports_ = std::move(committed.reports);
  committed_ = std::move(committed.results);
}

// From the first rank's commit on there is no way back. What is staged survives its process, so a rank that fails in
// the middle does its copy again. Only if that fails too is the engine torn.
RankReload::Answers RankReload::CommitStaged(bool keep) {
  Answers committed;
  const int tries = TriesOf(ranks_);
  for (int attempt = 1; attempt <= tries; ++attempt) {
    const Deadline deadline = Deadline::After(kCopyTimeout);
    try {
      if (attempt > 1) {
        ranks_.RestartIfLost();
        ranks_.Call("adopt_staged", Json::object(), deadline);
      }
      committed = Ask("commit", {{"keep", keep && attempt == 1}}, deadline, /*receives=*/false);
    } catch (const Error& error) {
      committed.error = error;
    }
    if (!committed.error) break;
    log::error("commit, try {} of {}: {}", attempt, tries, committed.error->what());
  }
  return committed;
}

// Ranks receive and write at the same time. If one of them fails, the others take back what they wrote, if their policy
// allows that.
RankReload::Answers RankReload::CommitLayerwise(Deadline deadline) {
  const Json params = {{"timeout_ms", TimeWithin(deadline.Remaining()).count()}};
  Answers committed = Ask("commit", params, deadline, /*receives=*/true);
  ExpectOneVersion(committed);
  if (committed.error) log::error("commit: {}", committed.error->what());
  return committed;
}

bool RankReload::RollBack(const std::vector<std::string>& served) {
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
bool RankReload::TryRollBack(const std::vector<std::string>& served) {
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

void RankReload::Verify() {
  const TraceScope span(trace_.Lane("verify", TraceKind::kCall));
  ReadBack(Deadline::After(kCopyTimeout));
  report_ = MergeReports(reports_);
  report_["ranks"] = Digests();
}

// The reports of ranks that have so little that they read it back while they committed; none unless all did.
std::vector<Json> RankReload::ReadBackInCommit() const {
  std::vector<Json> reports;
  for (std::size_t rank = 0; rank < committed_.size(); ++rank) {
    if (!committed_[rank].contains("read_back")) return {};
    const Json& answer = committed_[rank]["read_back"];
    if (answer.contains("error")) throw ErrorFromJson(answer["error"], "rank " + std::to_string(rank) + ": ");
    reports.push_back(answer.at("report"));
  }
  return reports;
}

// Ranks that were started anew since the commit know nothing of it, whoever has started them. So what their memory
// holds is compared with what was reported then.
void RankReload::ReadBack(Deadline deadline) {
  try {
    std::vector<Json> verified = ReadBackInCommit();
    if (verified.empty()) verified = ranks_.Call("verify", Json::object(), deadline);
    KeepWhatWasStaged(verified);
    reports_ = std::move(verified);
    return;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;
    ranks_.RestartIfLost();
    if (ranks_.generation() == committed_by_ || !ranks_.weights_outlive_ranks()) throw;
    log::warn("verifying: {}", error.what());
  }
  const std::vector<Json> digests = ranks_.Call("digests", Json::object(), deadline);
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    const Json& expected = reports_[rank].at("served_digest");
    const Json& got = digests[rank].at("served_digest");
    if (got != expected) {
      throw Error(ErrorCode::kCorrupt, "rank " + std::to_string(rank) +
                                           " was started anew after the commit, and serves other bytes: digest "
                                           "expected " +
                                           expected.get<std::string>() + ", got " + got.get<std::string>());
    }
    reports_[rank].update(digests[rank]);
  }
}

// Replaces each of the later reports, which are indexed by rank, by WithLater of it and of what the rank had reported
// before.
void RankReload::KeepWhatWasStaged(std::vector<Json>& later) const {
  for (std::size_t rank = 0; rank < later.size(); ++rank) {
    later[rank] = WithLater(reports_[rank], later[rank]);
    later[rank]["rank"] = rank;
  }
}

Json RankReload::Digests() const {
  Json digests = Json::array();
  for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
    digests.push_back({{"rank", rank},
                       {"pid", reports_[rank].at("pid")},
                       {"bytes", reports_[rank].at("bytes")},
                       {"served_digest", reports_[rank].at("served_digest")},
                       {"buffers_digest", reports_[rank].at("buffers_digest")},
                       {"noise", reports_[rank].at("noise")}});
  }
  return digests;
}

}  // namespace layercast
