#include "src/control/progress_forms.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace layercast {
namespace {

// Whether the rank has made its plan, so that its totals are known. They may be 0: a partial version may have nothing
// for a rank.
bool IsPlanned(const ReloadProgress& rank) {
  return !rank.stage.empty() && rank.stage != "connect" && rank.stage != "plan";
}

double ShareOf(const ReloadProgress& rank) {
  if (!IsPlanned(rank)) return rank.stage.empty() ? -2 : -1;
  return rank.bytes_total == 0 ? 1 : static_cast<double>(rank.bytes) / static_cast<double>(rank.bytes_total);
}

}  // namespace

Json ProgressToJson(const ReloadProgress& progress) {
  const bool named = !progress.version.lineage.empty();
  return {{"version", named ? VersionToJson(progress.version) : Json()},
          {"stage", progress.stage},
          {"bytes", progress.bytes},
          {"bytes_total", progress.bytes_total},
          {"layers", progress.layers},
          {"layers_total", progress.layers_total}};
}

ReloadProgress ProgressFromJson(const Json& json) {
  ReloadProgress progress{.stage = json.at("stage").get<std::string>(),
                          .bytes = json.at("bytes").get<std::uint64_t>(),
                          .bytes_total = json.at("bytes_total").get<std::uint64_t>(),
                          .layers = json.at("layers").get<std::uint64_t>(),
                          .layers_total = json.at("layers_total").get<std::uint64_t>()};
  const auto version = json.find("version");
  if (version != json.end() && !version->is_null()) progress.version = VersionFromJson(*version);
  return progress;
}

std::size_t Slowest(std::span<const ReloadProgress> ranks) {
  return static_cast<std::size_t>(std::ranges::min_element(ranks, {}, ShareOf) - ranks.begin());
}

ReloadProgress ProgressOfAll(std::span<const ReloadProgress> ranks) {
  ReloadProgress all;
  if (ranks.empty()) return all;
  all.stage = ranks[Slowest(ranks)].stage;
  const bool planned = std::ranges::all_of(ranks, IsPlanned);
  for (const ReloadProgress& rank : ranks) {
    if (all.version.lineage.empty()) all.version = rank.version;
    all.bytes += rank.bytes;
    all.layers += rank.layers;
    if (!planned) continue;
    all.bytes_total += rank.bytes_total;
    all.layers_total += rank.layers_total;
  }
  return all;
}

Json EngineProgressToJson(std::span<const ReloadProgress> ranks) {
  Json json = ProgressToJson(ProgressOfAll(ranks));
  json["ranks"] = Json::array();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Json rank = {{"rank", i}};
    rank.update(ProgressToJson(ranks[i]));
    rank.erase("version");
    json["ranks"].push_back(std::move(rank));
  }
  return json;
}

EngineProgress EngineProgressFromStatus(const Json& status) {
  const Json& progress = status.at("progress");
  EngineProgress engine{.state = status.at("state").get<std::string>(), .all = ProgressFromJson(progress)};
  for (const Json& rank : progress.at("ranks")) engine.ranks.push_back(ProgressFromJson(rank));
  return engine;
}

}  // namespace layercast
