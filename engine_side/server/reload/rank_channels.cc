#include "engine_side/server/reload/rank_channels.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

namespace layercast {
namespace {

// The entries of the ranks that took a data channel, each with its rank; of all ranks if none did.
std::vector<Json> ChannelsOf(const std::vector<Json>& reports) {
  std::vector<Json> all;
  for (const Json& report : reports) {
    all.push_back(report.at("channel"));
    all.back()["rank"] = report.at("rank");
  }
  std::vector<Json> taken;
  std::ranges::copy_if(all, std::back_inserter(taken), IsDataChannel);
  std::vector<Json>& channels = taken.empty() ? all : taken;
  std::ranges::stable_sort(channels, {}, [](const Json& channel) { return channel["rank"].get<int>(); });
  return channels;
}

// The entry with the lowest rate. A rank that received nothing has no rate, and does not count.
const Json& SlowestOf(const std::vector<Json>& channels) {
  return *std::ranges::min_element(channels, {}, [](const Json& channel) {
    const double rate = channel["gb_per_s"].get<double>();
    return rate > 0 ? rate : std::numeric_limits<double>::infinity();
  });
}

Json WarningsOf(const std::vector<Json>& channels) {
  std::string warnings;
  for (const Json& channel : channels) {
    if (!channel["warning"].is_string()) continue;
    const std::string who = channels.size() == 1 ? "" : "rank " + channel["rank"].dump() + ": ";
    warnings += (warnings.empty() ? "" : "; ") + who + channel["warning"].get<std::string>();
  }
  return warnings.empty() ? Json(nullptr) : Json(warnings);
}

// The names in all entries, each once: "shm, zmq".
std::string AllOf(const std::vector<Json>& channels, const char* field) {
  std::string names;
  for (const Json& channel : channels) AddChannelName(names, channel[field].get<std::string>());
  return names;
}

}  // namespace

void AddChannelName(std::string& names, const std::string& name) {
  if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
}

bool IsDataChannel(const Json& channel) { return channel.at("name") != "path" && channel.at("name") != "dummy"; }

Json MergeChannels(const std::vector<Json>& reports) {
  const std::vector<Json> channels = ChannelsOf(reports);
  Json merged = SlowestOf(channels);
  merged.erase("rank");
  merged["warning"] = WarningsOf(channels);
  const bool agree = std::ranges::all_of(channels, [&](const Json& channel) {
    return channel["name"] == merged["name"] && channel["lane"] == merged["lane"];
  });
  if (agree) return merged;
  merged["name"] = AllOf(channels, "name");
  merged["lane"] = AllOf(channels, "lane");
  merged["reason"] = "the ranks took different channels";
  merged["ranks"] = channels;
  return merged;
}

}  // namespace layercast
