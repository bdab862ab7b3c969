#include "engine_side/server/reload/rank_reports.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "layercast/version.h"
#include "src/control/json_forms.h"
#include "src/transport/all/channel_names.h"

namespace layercast {
namespace {

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

// Adds `name` to a list such as "shm, zmq", unless it is in there.
void AddChannelName(std::string& names, const std::string& name) {
  if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
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

// If all ranks took the same channel, the result is the slowest rank's entry with the warnings of all. Otherwise it
// names every channel, has the slowest rank's rate, and lists under "ranks" what each rank took. Ranks that failed
// before they took a channel are left out.
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

// All ranks' bytes, the slowest one's times, and each reason once. Null if no rank keeps its source, or none came to
// know what it takes.
Json MergeDeltas(const std::vector<Json>& reports) {
  Json merged = nullptr;
  for (const Json& report : reports) {
    const Json delta = report.value("delta", Json());
    if (!delta.is_object()) continue;
    if (merged.is_null()) {
      merged = delta;
      continue;
    }
    merged["taken"] = merged["taken"].get<bool>() && delta["taken"].get<bool>();
    auto& why = merged["why"].get_ref<std::string&>();
    const auto other = delta["why"].get<std::string>();
    if (why.find(other) == std::string::npos) why += "; " + other;
    for (const char* sum : {"dense_bytes", "encoded_bytes"}) {
      merged[sum] = merged[sum].get<std::uint64_t>() + delta[sum].get<std::uint64_t>();
    }
    for (const char* most : {"estimated_dense_ms", "estimated_delta_ms", "took_ms"}) {
      merged[most] = std::max(merged[most].get<double>(), delta[most].get<double>());
    }
  }
  return merged;
}

}  // namespace

// Of several, with commas between, all are.
bool IsDataChannel(const Json& channel) {
  const auto names = channel.at("name").get<std::string>();
  const std::string_view first = std::string_view(names).substr(0, names.find(','));
  return std::ranges::find(ChannelNames(), first, &ChannelName::name) != ChannelNames().end();
}

Json WithLater(const Json& staged, const Json& later) {
  if (later.at("layers") != 0 || staged.at("layers") == 0) return later;
  Json report = staged;
  for (const char* of_now : {"served_digest", "buffers_digest", "pid"}) report[of_now] = later.at(of_now);
  MergeStages(later.at("stage_ms"), report["stage_ms"]);
  return report;
}

Json MergeReports(const std::vector<Json>& reports) {
  // A rank that was told to give up before it knew what there is to load says less than the one that refused it.
  const auto knows = [](const Json& report) { return VersionFromJson(report.at("version")) != Version(); };
  const auto said = std::ranges::find_if(reports, knows);
  Json merged = said == reports.end() ? reports.front() : *said;
  for (const char* of_one : {"served_digest", "buffers_digest", "pid", "rank"}) merged.erase(of_one);
  merged["channel"] = MergeChannels(reports);
  merged["delta"] = MergeDeltas(reports);
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
