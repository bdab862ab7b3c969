#include "cli/terminal/reload_bar.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "src/control/progress_forms.h"

namespace layercast::cli {
namespace {

// The ranks of all engines. An engine of which nothing was heard counts as one that has not begun.
std::vector<ReloadProgress> AllRanks(const std::vector<EngineProgress>& engines) {
  std::vector<ReloadProgress> ranks;
  for (const EngineProgress& engine : engines) {
    ranks.insert(ranks.end(), engine.ranks.begin(), engine.ranks.end());
    if (engine.ranks.empty()) ranks.push_back(engine.all);
  }
  return ranks;
}

// The engine, and which of its ranks, that has that place in AllRanks.
std::string NameOf(std::size_t place, const std::vector<EngineProgress>& engines) {
  for (std::size_t i = 0; i < engines.size(); ++i) {
    const std::size_t ranks = std::max<std::size_t>(engines[i].ranks.size(), 1);
    if (place < ranks) {
      std::string rank = ranks == 1 ? "" : "rank " + std::to_string(place);
      if (engines.size() == 1) return rank;
      return engines[i].endpoint + (rank.empty() ? "" : " " + rank);
    }
    place -= ranks;
  }
  return "";
}

}  // namespace

BarState ReloadBarState(std::string what, const std::vector<EngineProgress>& engines) {
  const std::vector<ReloadProgress> ranks = AllRanks(engines);
  const ReloadProgress all = ProgressOfAll(ranks);
  BarState state{
      .what = std::move(what), .stage = all.stage, .bytes = all.bytes, .bytes_total = all.bytes_total, .slowest = ""};
  const bool held = std::ranges::any_of(engines, [](const auto& engine) { return engine.state == "staged"; });
  if (held && all.bytes == all.bytes_total) state.stage = "staged";
  const std::size_t slowest = Slowest(ranks);
  if (ranks.size() < 2 || all.bytes_total == 0 || ranks[slowest].bytes == ranks[slowest].bytes_total) return state;
  const std::uint64_t percent = ranks[slowest].bytes * 100 / ranks[slowest].bytes_total;
  state.slowest = NameOf(slowest, engines) + " at " + std::to_string(percent) + " %";
  return state;
}

BarState LoadingBarState(const Json& status) {
  EngineProgress engine;
  if (status.at("progress").is_object()) engine = EngineProgressFromStatus(status);
  return ReloadBarState("loading", {std::move(engine)});
}

}  // namespace layercast::cli
