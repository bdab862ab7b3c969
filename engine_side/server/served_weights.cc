#include "engine_side/server/served_weights.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "engine_side/server/group/export_folder.h"
#include "layercast/error.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

void AddCount(Json& sum, const Json& rank, const char* field) {
  sum[field] = sum[field].get<std::uint64_t>() + rank[field].get<std::uint64_t>();
}

// The adapters that have a name: what their loads had found of them.
Json ServedAdapters(const Json& list) {
  Json served = Json::array();
  for (const Json& entry : list) {
    if (entry["state"] != "served") continue;
    served.push_back({{"name", entry["name"]}, {"found", entry}, {"ranks", Json::array()}});
  }
  return served;
}

// What all ranks found when they compared.
Json Together(const std::vector<Json>& compared) {
  Json result = {{"equal", true}, {"tensors", 0}, {"bytes", 0}, {"differences", Json::array()}};
  for (const Json& rank : compared) {
    AddCount(result, rank, "tensors");
    AddCount(result, rank, "bytes");
    for (const Json& difference : rank["differences"]) result["differences"].push_back(difference);
  }
  result["equal"] = result["differences"].empty();
  return result;
}

}  // namespace

Json ExportServed(RankGroup& ranks, const Version& version, const ModelDescription& description,
                  const std::string& directory) {
  const ExportFolder folder(directory);
  const Json params = {{"directory", folder.unfinished().string()}, {"version", VersionToJson(version)}};
  Json result = {{"files", Json::array()}, {"tensors", 0}, {"bytes", 0}, {"version", VersionToJson(version)}};
  for (const Json& rank : ranks.Call("export", params, Deadline::After(kRankTimeout))) {
    for (const Json& file : rank["files"]) result["files"].push_back(file);
    AddCount(result, rank, "tensors");
    AddCount(result, rank, "bytes");
  }
  folder.Write("config.json", description.config_json());
  auto names = result["files"].get<std::vector<std::string>>();
  names.emplace_back("config.json");
  folder.Publish(names);
  return result;
}

Json CompareServed(RankGroup& ranks, Json params, std::uint64_t comparison, const std::stop_token& abandoned) {
  params["comparison"] = comparison;
  std::vector<Json> compared;
  try {
    compared = ranks.Call("compare", params, Deadline::After(kRankTimeout).OrStop(abandoned));
  } catch (...) {
    ranks.CancelComparison(comparison);  // on those ranks that are still at it
    throw;
  }
  Json result = Together(compared);
  for (const char* alike : {"config_changes", "noise"}) result[alike] = compared.front()[alike];  // of all ranks
  return result;
}

Json CompareAdapter(RankGroup& ranks, AdapterRegistry& adapters, const Json& params) {
  const AdapterLease lease = adapters.Lease(params.at("adapter").get<std::string>());  // the slot is not written now
  return Together(ranks.Call("compare_adapter", {{"slot", lease.slot()}, {"weights_path", params.at("weights_path")}},
                             Deadline::After(kRankTimeout)));
}

Json LendServed(RankGroup& ranks, const Json& status, const Lending& how) {
  if (status["version"].is_null()) {
    throw Error(ErrorCode::kFailedPrecondition, "this engine is torn: it has no weights to lend");
  }
  const EngineLayout layout = ranks.layout();
  const std::string host = HostOf(how.endpoint);
  Json adapters = how.adapters ? ServedAdapters(status["adapters"]) : Json::array();
  Json params = {{"version", status["version"]},
                 {"bind", "tcp://" + (host.empty() ? "127.0.0.1" : host) + ":0"},
                 {"places", Json::array()}};
  for (const Json& adapter : adapters) params["places"].push_back(adapter["found"]["place"]);
  Json result = {{"version", status["version"]},
                 {"tp", layout.tp_size},
                 {"pp", layout.pp_size},
                 {"pp_layers", layout.pp_layers},
                 {"expert_parallel", layout.expert_parallel},
                 {"expert_placement", ExpertPlacementName(layout.expert_placement)},
                 {"quantization", layout.recipe},
                 {"power_of_two_scales", layout.power_of_two_scales},
                 {"adapter_slots", ToJson(layout.adapters)},
                 {"ranks", Json::array()}};
  for (const Json& lent : ranks.Call("lend", params, Deadline::After(kRankTimeout))) {
    const std::size_t rank = result["ranks"].size();
    // What is lent has no noise, and then another digest than what is served.
    const Json& served = status["ranks"][rank]["served_digest"];
    result["ranks"].push_back({{"endpoint", lent["endpoint"]}, {"served_digest", lent.value("clean_digest", served)}});
    for (std::size_t i = 0; i < adapters.size(); ++i) {
      Json of_rank = lent["places"][i];
      of_rank["digest"] = adapters[i]["found"]["digests"][rank];
      adapters[i]["ranks"].push_back(std::move(of_rank));
    }
  }
  result["adapters"] = std::move(adapters);
  return result;
}

}  // namespace layercast
