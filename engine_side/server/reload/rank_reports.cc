#include "engine_side/server/reload/rank_reports.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "engine_side/server/reload/rank_channels.h"
#include "layercast/report.h"

namespace layercast {
namespace {

// The report in place of one that a lost rank could not make: an empty one, with its last progress.
Json LastWords(const Json& progress) {
  Json report = Json::parse(ReloadReport().ToJson());
  for (const char* known : {"bytes", "bytes_total"}) {
    if (progress.is_object()) report[known] = progress.at(known);
  }
  return report;
}

// Adds those texts of the list `from` that `into` does not have yet.
void AddNew(const Json& from, Json& into) {
  for (const Json& text : from) {
    if (std::ranges::find(into, text) == into.end()) into.push_back(text);
  }
}

// Keeps the longer time of each stage.
void MergeStages(const Json& from, Json& into) {
  for (const auto& [stage, took] : from.items()) into[stage] = std::max(into.value(stage, 0.0), took.get<double>());
}

// Adds a rank's shares of the publishers. All ranks list the publishers in the same order; a rank that opened no
// session lists none.
void AddShares(const Json& of_rank, Json& merged) {
  for (std::size_t i = 0; i < of_rank.size(); ++i) {
    if (i == merged.size()) {
      merged.push_back(of_rank[i]);
      continue;
    }
    for (const char* sum : {"bytes", "relayed_bytes"}) {
      merged[i][sum] = merged[i][sum].get<std::uint64_t>() + of_rank[i][sum].get<std::uint64_t>();
    }
    // Not a sum: each rank's number includes the others' as far as they were served at the same time.
    merged[i]["serving_core_ms"] =
        std::max(merged[i]["serving_core_ms"].get<double>(), of_rank[i]["serving_core_ms"].get<double>());
    AddNew(of_rank[i]["relays"], merged[i]["relays"]);
    AddChannelName(merged[i]["channel"].get_ref<std::string&>(), of_rank[i]["channel"].get<std::string>());
  }
}

// The error in a rank's answer, if there is one.
std::optional<Error> ErrorOf(std::size_t rank, const RankAnswer& answer) {
  if (answer.error) return answer.error;
  if (!answer.result.contains("error")) return std::nullopt;
  return ErrorFromJson(answer.result["error"], "rank " + std::to_string(rank) + ": ");
}

bool IsFirst(const Error& error, const std::optional<Error>& before) {
  if (!before) return true;
  return before->code() == ErrorCode::kCancelled && error.code() != ErrorCode::kCancelled;
}

}  // namespace

RankReports AskForReports(RankGroup& ranks, const std::string& method, const Json& params, Deadline deadline,
                          std::optional<std::uint64_t> attempt) {
  RankReports outcome;
  const HearAnswer heard = [&](std::size_t rank, const RankAnswer& answer) {
    const std::optional<Error> error = ErrorOf(rank, answer);
    if (!error) return;
    if (!outcome.error && attempt) ranks.Cancel(*attempt);
    if (IsFirst(*error, outcome.error)) outcome.error.emplace(*error);
  };
  std::vector<Json> lost;
  const std::vector<RankAnswer> answers = ranks.Try(method, params, deadline, heard);
  for (std::size_t rank = 0; rank < answers.size(); ++rank) {
    const RankAnswer& answer = answers[rank];
    Json report = answer.error ? LastWords(answer.progress) : answer.result.at("report");
    report["rank"] = rank;
    (answer.error ? lost : outcome.reports).push_back(std::move(report));
  }
  std::ranges::move(lost, std::back_inserter(outcome.reports));
  return outcome;
}

void ExpectOneVersion(RankReports& outcome, bool own_versions) {
  for (const Json& report : outcome.reports) {
    const Json& first = outcome.reports.front();
    if (outcome.error || own_versions || report["version"] == first["version"]) continue;
    outcome.error.emplace(ErrorCode::kCorrupt, "the ranks took different versions: rank " + first["rank"].dump() + " " +
                                                   first["version"].dump() + ", rank " + report["rank"].dump() + " " +
                                                   report["version"].dump());
  }
}

Json WithLater(const Json& staged, const Json& later) {
  if (later.at("layers") != 0 || staged.at("layers") == 0) return later;
  Json report = staged;
  for (const char* of_now : {"served_digest", "buffers_digest", "pid"}) report[of_now] = later.at(of_now);
  MergeStages(later.at("stage_ms"), report["stage_ms"]);
  return report;
}

Json MergeReports(const std::vector<Json>& reports) {
  Json merged = reports.front();
  for (const char* of_one : {"served_digest", "buffers_digest", "pid", "rank"}) merged.erase(of_one);
  merged["channel"] = MergeChannels(reports);
  merged["out_of_order"] = Json::array();
  merged["publishers"] = Json::array();
  for (const char* sum : {"bytes", "bytes_total", "layers", "layers_kept", "staged_bytes"}) merged[sum] = 0;
  for (const Json& report : reports) {
    for (const char* sum : {"bytes", "bytes_total", "layers", "layers_kept", "staged_bytes"}) {
      merged[sum] = merged[sum].get<std::uint64_t>() + report[sum].get<std::uint64_t>();
    }
    merged["peak_buffered_bytes"] = std::max(merged["peak_buffered_bytes"].get<std::uint64_t>(),
                                             report["peak_buffered_bytes"].get<std::uint64_t>());
    AddNew(report["kept"], merged["kept"]);  // pipeline stages have different layers
    AddNew(report["config_changes"], merged["config_changes"]);
    AddShares(report["publishers"], merged["publishers"]);
    MergeStages(report["stage_ms"], merged["stage_ms"]);
    for (Json episode : report["out_of_order"]) {
      episode["rank"] = report["rank"];
      merged["out_of_order"].push_back(std::move(episode));
    }
  }
  return merged;
}

}  // namespace layercast
