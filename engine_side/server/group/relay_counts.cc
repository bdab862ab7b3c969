#include "engine_side/server/group/relay_counts.h"

#include <chrono>
#include <string>
#include <utility>

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kToCount{2000};  // who asks for metrics waits no longer than some seconds

}  // namespace

Json RelayCountsToJson(const TakerCounts& counts) {
  Json refusals = Json::object();
  for (const auto& [code, count] : counts.refusals) refusals[std::string(ErrorCodeName(code))] = count;
  return {{"sessions", counts.sessions}, {"bytes", counts.bytes}, {"refusals", std::move(refusals)}};
}

std::vector<Json> RelayCountsOf(RankGroup& ranks) {
  if (!ranks.relays()) return {};
  std::vector<Json> counts;
  for (RankAnswer& answer : ranks.Try("relay_counts", Json::object(), Deadline::After(kToCount))) {
    counts.push_back(answer.error ? Json() : std::move(answer.result));
  }
  return counts;
}

}  // namespace layercast
