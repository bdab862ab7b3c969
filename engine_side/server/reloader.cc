#include "engine_side/server/reloader.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "layercast/report.h"
#include "src/base/log.h"

namespace layercast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDefaultTimeout{300'000};
constexpr std::chrono::milliseconds kCommitTimeout{120'000};
constexpr std::chrono::milliseconds kAnswerTime{2'000};
constexpr int kCommitTries = 3;

Json ErrorToJson(const Error& error) { return {{"code", ErrorCodeName(error.code())}, {"message", error.what()}}; }

Version VersionFromJson(const Json& json) {
  return {json.at("lineage").get<std::string>(), json.at("step").get<std::uint64_t>(),
          Digest::FromHex(json.at("digest").get<std::string>()).value_or(Digest{})};
}

// The report of a rank that could not make one.
Json LastWords(const Json& progress) {
  Json report = Json::parse(ReloadReport().ToJson());
  if (progress.is_object()) report.update(progress);
  return report;
}

}  // namespace

Reloader::Reloader(RankGroup& ranks, Generator& generator, std::string default_pause_mode)
    : ranks_(ranks), generator_(generator), default_pause_mode_(std::move(default_pause_mode)) {}

Json Reloader::Reload(const Json& params) {
  const auto begin = Clock::now();
  Json outcome;
  Json report;
  try {
    const PauseMode mode = PauseModeNamed(params.value("pause_mode", default_pause_mode_));
    const Deadline deadline =
        Deadline::After(std::chrono::milliseconds(params.value("timeout_ms", kDefaultTimeout.count())));
    SetState("receiving");
    Outcome staged = Stage(params, deadline);
    if (!staged.reports.empty()) report = Merge(staged.reports);
    if (staged.error) throw Error(*staged.error);
    const Version version = VersionFromJson(report.at("version"));
    SetState("staged");
    Commit(mode, version, deadline);
    {
      const std::lock_guard lock(mutex_);
      version_ = version;
    }
    report = Verify(Deadline::After(kCommitTimeout));
    outcome["ok"] = true;
    outcome["error"] = nullptr;
  } catch (const Error& error) {
    log::error("reload: {}", error.what());
    ranks_.RestartIfLost();
    outcome["ok"] = false;
    outcome["error"] = ErrorToJson(error);
  }
  if (report.is_object()) report["total_ms"] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();

  const std::lock_guard lock(mutex_);
  if (state_ != "torn") state_ = "serving";
  last_error_ = outcome["error"];
  last_report_ = report;
  outcome["version"] = version_ ? VersionToJson(*version_) : Json(nullptr);
  outcome["report"] = std::move(report);
  return outcome;
}

Reloader::Outcome Reloader::Stage(const Json& params, Deadline deadline) {
  ranks_.RestartIfLost();
  Json request = params;
  const bool path = request.contains("weights_path") && !request["weights_path"].is_null();
  const bool publisher = request.contains("publisher") && !request["publisher"].is_null();
  if (!path && !publisher) {
    if (origin_.is_null())
      throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
    request.update(origin_);
  }
  request["attempt"] = ++attempt_;
  // A rank gives up a little earlier, so that it can say whom it waited for.
  const auto left = deadline.Remaining();
  request["timeout_ms"] = (left - std::min(left / 10, kAnswerTime)).count();
  Outcome outcome;
  std::vector<Json> lost;  // of ranks that are gone: what they had said before
  const std::vector<RankAnswer> answers = ranks_.Try("stage", request, deadline);
  const std::vector<Json> progress = ranks_.progress();
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const RankAnswer& answer = answers[rank];
    Json report = answer.error ? LastWords(progress[rank]) : answer.result.at("report");
    report["rank"] = rank;
    (answer.error ? lost : outcome.reports).push_back(std::move(report));
    if (outcome.error) continue;
    if (answer.error) outcome.error = *answer.error;
    if (!answer.error && answer.result.contains("error")) {
      const Json& error = answer.result["error"];
      outcome.error.emplace(ErrorCodeNamed(error.at("code").get<std::string>()),
                            "rank " + std::to_string(rank) + ": " + error.at("message").get<std::string>());
    }
  }
  std::ranges::move(lost, std::back_inserter(outcome.reports));
  const bool kernel_format = !request.value("is_checkpoint_format", true);
  for (const Json& report : outcome.reports) {
    if (outcome.error || kernel_format || report["version"] == outcome.reports.front()["version"]) continue;
    outcome.error.emplace(ErrorCode::kCorrupt, "the ranks staged different versions: rank 0 " +
                                                   outcome.reports.front()["version"].dump() + ", rank " +
                                                   report["rank"].dump() + " " + report["version"].dump());
  }
  if (outcome.error) {
    try {
      ranks_.Call("abort", Json::object(), Deadline::After(kCommitTimeout));
    } catch (const Error&) {  // a rank that is gone holds nothing
    }
  } else if (path) {
    origin_ = {{"weights_path", request["weights_path"]}, {"is_checkpoint_format", !kernel_format}};
  }
  return outcome;
}

void Reloader::Commit(PauseMode mode, const Version& version, Deadline deadline) {
  const std::function<void()> on_ranks = [this] {
    SetState("committing");
    const Deadline bound = Deadline::After(kCommitTimeout);
    ranks_.Call("prepare", Json::object(), bound);  // all may still refuse
    CommitOnRanks(bound);
  };
  generator_.Commit(mode, version, on_ranks, deadline);
}

// From the first rank's commit on there is no way back: what is staged survives its process, so that a rank that fails
// in the middle does its copy again. Only if that fails too is the engine torn.
void Reloader::CommitOnRanks(Deadline deadline) {
  for (int attempt = 1;; ++attempt) {
    try {
      if (attempt > 1) {
        ranks_.RestartIfLost();
        ranks_.Call("adopt_staged", Json::object(), deadline);
      }
      ranks_.Call("commit", Json::object(), deadline);
      return;
    } catch (const Error& error) {
      log::error("commit, try {} of {}: {}", attempt, kCommitTries, error.what());
      if (attempt < kCommitTries) continue;
      SetState("torn");
      generator_.SetTorn(error.what());
      throw;
    }
  }
}

// Reads the served bytes back. A rank that was started anew has lost its figures, not its bytes.
Json Reloader::Verify(Deadline deadline) {
  std::vector<Json> reports;
  try {
    reports = ranks_.Call("verify", Json::object(), deadline);
  } catch (const Error& error) {
    if (!ranks_.RestartIfLost()) throw;
    log::warn("verifying: {}", error.what());
    ranks_.Call("adopt_staged", Json::object(), deadline);
    ranks_.Call("commit", Json::object(), deadline);
    reports = ranks_.Call("verify", Json::object(), deadline);
  }
  const std::vector<int> pids = ranks_.pids();
  Json digests = Json::array();
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    reports[rank]["rank"] = rank;
    digests.push_back({{"rank", rank},
                       {"pid", pids[rank]},
                       {"bytes", reports[rank]["bytes"]},
                       {"served_digest", reports[rank]["served_digest"]},
                       {"buffers_digest", reports[rank]["buffers_digest"]}});
  }
  Json report = Merge(reports);
  report["ranks"] = digests;
  const std::lock_guard lock(mutex_);
  rank_digests_ = std::move(digests);
  return report;
}

// One report of the ranks': sums of bytes and layers, the slowest rank's times, everybody's episodes.
Json Reloader::Merge(const std::vector<Json>& reports) const {
  Json merged = reports.front();
  merged.erase("served_digest");
  merged.erase("buffers_digest");
  merged.erase("rank");
  merged["out_of_order"] = Json::array();
  for (const char* sum : {"bytes", "bytes_total", "layers", "staged_bytes"}) merged[sum] = 0;
  for (const Json& report : reports) {
    for (const char* sum : {"bytes", "bytes_total", "layers", "staged_bytes"}) {
      merged[sum] = merged[sum].get<std::uint64_t>() + report[sum].get<std::uint64_t>();
    }
    merged["peak_buffered_bytes"] = std::max(merged["peak_buffered_bytes"].get<std::uint64_t>(),
                                             report["peak_buffered_bytes"].get<std::uint64_t>());
    for (const auto& [stage, milliseconds] : report["stage_ms"].items()) {
      merged["stage_ms"][stage] = std::max(merged["stage_ms"].value(stage, 0.0), milliseconds.get<double>());
    }
    for (Json episode : report["out_of_order"]) {
      episode["rank"] = report["rank"];
      merged["out_of_order"].push_back(std::move(episode));
    }
  }
  return merged;
}

void Reloader::SetState(const std::string& state) {
  const std::lock_guard lock(mutex_);
  state_ = state;
}

Json Reloader::Status() const {
  const std::lock_guard lock(mutex_);
  Json channel = nullptr;
  if (last_report_.is_object() && last_report_["channel"]["name"] != "path") channel = last_report_["channel"];
  return {{"state", state_},
          {"version", version_ ? VersionToJson(*version_) : Json(nullptr)},
          {"ranks", rank_digests_},
          {"channel", channel},
          {"last_report", last_report_},
          {"last_error", last_error_}};
}

std::optional<Version> Reloader::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

}  // namespace layercast
