#include "engine_side/server/reload/adapter_loads.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine_side/adapters/load/offered_adapter.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/reload/rank_reports.h"
#include "layercast/error.h"
#include "src/adapter/adapter_text.h"
#include "src/base/utf8.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

// What a rank says that lists show.
constexpr const char* kAbout[] = {"rank",    "modules",  "zero_modules", "bytes",
                                  "skipped", "warnings", "unused",       "digests"};

std::string NameFrom(const Json& params) {
  std::string name = params.at("name").get<std::string>();
  CheckAdapterName(name);
  return name;
}

// The adapters that a reload is to bring: a list of names, or "*", all that the version has.
std::vector<std::string> NamesFrom(const Json& names, const std::vector<std::string>& publishers,
                                   const Version& version, const Keys& keys, Deadline deadline) {
  if (names != "*") return names.get<std::vector<std::string>>();
  return AdaptersOf(publishers, version, keys, deadline);
}

// What Fill needs for each adapter of a publisher's version.
std::vector<Json> OfPublisher(const Json& params, const Version& version, const Keys& keys, Deadline deadline) {
  const std::vector<std::string> publishers = SplitEndpoints(params.at("publisher").get<std::string>());
  std::vector<Json> requests;
  for (const std::string& name : NamesFrom(params.at("adapters"), publishers, version, keys, deadline)) {
    requests.push_back({{"name", name},
                        {"adapter", name},
                        {"publisher", params["publisher"]},
                        {"lineage", version.lineage},
                        {"step", version.step},
                        {"channel", params.value("channel", std::string())}});
  }
  return requests;
}

// What Fill needs for each adapter that another engine lends.
std::vector<Json> OfEngine(const Json& params) {
  const Json& lent = params["lent"].at("adapters");
  const Json& wanted = params.at("adapters");
  std::vector<Json> requests;
  std::string served;
  for (const Json& adapter : lent) {
    const Json& name = adapter.at("name");
    served += (served.empty() ? "" : ", ") + Quote(name.get<std::string>());
    if (wanted == "*" || std::ranges::find(wanted, name) != wanted.end()) {
      requests.push_back({{"name", name}, {"lent", adapter}});
    }
  }
  if (wanted == "*") return requests;
  for (const Json& name : wanted) {
    if (std::ranges::any_of(requests, [&](const Json& request) { return request["name"] == name; })) continue;
    throw Error(ErrorCode::kNotFound, "engine " + params.at("engine").get<std::string>() + " serves no adapter " +
                                          Quote(name.get<std::string>()) + ": it serves " +
                                          (served.empty() ? "none" : served));
  }
  return requests;
}

// The ranks' answers as one. Throws kInternal if they hold different versions.
Json Merged(const std::vector<Json>& ranks) {
  Json merged = ranks.front();
  std::vector<Json> reports;
  merged["digests"] = Json::array();
  for (const Json& rank : ranks) {
    if (rank["version"] != merged["version"]) {
      throw Error(ErrorCode::kInternal, "the ranks took different versions of an adapter: " + merged["version"].dump() +
                                            " and " + rank["version"].dump());
    }
    merged["rank"] = std::max(merged["rank"].get<int>(), rank["rank"].get<int>());
    merged["bytes"] = std::max(merged["bytes"].get<std::uint64_t>(), rank["bytes"].get<std::uint64_t>());
    merged["digests"].push_back(rank["digest"]);
    reports.push_back(rank["report"]);
    reports.back()["rank"] = reports.size() - 1;
  }
  merged["report"] = MergeReports(reports);
  return merged;
}

}  // namespace

FilledAdapter AdapterLoads::Fill(const Json& params, const std::optional<Version>& base, Deadline deadline) {
  const std::string name = NameFrom(params);
  if (IsGiven(params, "weights_path") + IsGiven(params, "publisher") + IsGiven(params, "lent") != 1) {
    throw Error(ErrorCode::kInvalidArgument, "adapter " + Quote(name) + ": expected one of weights_path and publisher");
  }
  FilledAdapter filled{.slot = mover_.TakeSlot(name, AdapterRegistry::For::kLoad, deadline.OrStop(ranks_.ending())),
                       .adapter = {.name = name}};
  Json request = params;
  request["slot"] = filled.slot.place();
  request["load"] = ++loads_;
  const Json found = FillOnRanks(request, deadline);
  filled.adapter.version = VersionFromJson(found["version"]);
  if (!found["base"].is_null()) filled.adapter.base = VersionFromJson(found["base"]);
  for (const char* field : kAbout) filled.adapter.about[field] = found[field];
  filled.pin = params.value("pin", false);
  filled.report = found["report"];
  if (base && filled.adapter.base && filled.adapter.base->digest != base->digest) {
    throw Error(ErrorCode::kFailedPrecondition, "adapter " + Quote(name) + " was trained on " +
                                                    filled.adapter.base->ToString() + ", this engine serves " +
                                                    base->ToString());
  }
  return filled;
}

Json AdapterLoads::FillOnRanks(const Json& request, Deadline deadline) {
  std::optional<Error> first;
  const std::uint64_t load = request["load"].get<std::uint64_t>();
  const auto heard = [&](std::size_t /*rank*/, const RankAnswer& answer) {
    if (!answer.error || first) return;
    first = answer.error;
    ranks_.CancelAdapterLoad(load);
  };
  const std::vector<RankAnswer> answers = ranks_.Try("fill_adapter", request, deadline, heard);
  std::vector<Json> results;
  for (const RankAnswer& answer : answers) {
    if (answer.error && !first) first = answer.error;
    results.push_back(answer.result);
  }
  if (first) {
    ranks_.CancelAdapterLoad(load);  // on those that have not answered in time
    throw Error(*first);
  }
  return Merged(results);
}

std::vector<FilledAdapter> AdapterLoads::FillAll(const Json& params, const Version& version, Deadline deadline) {
  std::vector<FilledAdapter> filled;
  const bool lent = IsGiven(params, "lent");
  for (const Json& request : lent ? OfEngine(params) : OfPublisher(params, version, ranks_.keys(), deadline)) {
    const std::string name = request["name"].get<std::string>();
    filled.push_back(Fill(request, std::nullopt, deadline));
    if (lent || filled.back().adapter.version == version) continue;
    throw Error(ErrorCode::kFailedPrecondition, "adapter " + Quote(name) + ": expected " + version.ToString() +
                                                    ", which the base is of, got " +
                                                    filled.back().adapter.version.ToString());
  }
  return filled;
}

void AdapterLoads::Name(FilledAdapter filled, bool with_base) {
  registry_.Name(std::move(filled.slot), std::move(filled.adapter), filled.pin, with_base);
}

}  // namespace layercast
