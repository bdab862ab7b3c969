#include "engine_side/server/group/borrow.h"

#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/control/rpc.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

constexpr std::pair<const char*, const char*> kAdapterFlags[] = {
    {"max_rank", "--max-adapter-rank"}, {"dtype", "--adapter-dtype"}, {"modules", "--adapter-modules"}};

// An engine could only lend after its reload, and so would wait for itself.
void ExpectAnother(const std::string& endpoint, const std::string& own_endpoint, const Deadline& deadline) {
  if (ByAddress(endpoint, deadline.AtMost(kToLookUp)) != own_endpoint) return;
  throw Error(ErrorCode::kInvalidArgument, "params: engine: expected another engine, got this one");
}

void ExpectSame(const std::string& engine, const char* what, const std::string& mine, const std::string& theirs) {
  if (mine == theirs) return;
  throw Error(ErrorCode::kInvalidArgument, engine + " lends kernel tensors, which need the same layout: " + what +
                                               " expected " + mine + ", got " + theirs +
                                               " (publish the checkpoint instead)");
}

// Of each adapter, where each rank lends it.
Json AdaptersLent(const std::string& engine, const Json& lent, const Json& ranks, const AdapterLayout& mine) {
  Json adapters = lent.at("adapters");
  if (adapters.empty()) return adapters;
  const Json own = ToJson(mine);
  for (const auto& [what, flag] : kAdapterFlags) {
    const std::string expected = own[what].dump(), got = lent.at("adapter_slots").at(what).dump();
    if (expected == got) continue;
    throw Error(ErrorCode::kInvalidArgument,
                engine + " lends adapters as they lie in its slots, which need the same layout: " + flag +
                    " expected " + expected + ", got " + got +
                    " (load them from their publisher or their folders instead, or take the base alone)");
  }
  for (Json& adapter : adapters) {
    Json& of_ranks = adapter.at("ranks");
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) of_ranks.at(rank)["endpoint"] = ranks[rank]["endpoint"];
  }
  return adapters;
}

}  // namespace

Json ToJson(const AdapterLayout& layout) {
  return {{"max_rank", layout.max_rank}, {"dtype", Name(layout.dtype)}, {"modules", layout.modules}};
}

Json Borrow(const std::string& endpoint, const Borrower& borrower, Deadline deadline) {
  ExpectAnother(endpoint, borrower.endpoint, deadline);
  const std::string engine = "engine " + endpoint;
  const EngineLayout& mine = borrower.layout;
  const Json params = {{"adapters", borrower.adapters}};
  const Json lent = RpcClient("engine", endpoint, borrower.keys).Call("lend_weights", params, deadline);
  try {
    ExpectSame(engine, "tp", std::to_string(mine.tp_size), lent.at("tp").dump());
    ExpectSame(engine, "pp", std::to_string(mine.pp_size), lent.at("pp").dump());
    ExpectSame(engine, "pp_layers", Json(mine.pp_layers).dump(), lent.at("pp_layers").dump());
    ExpectSame(engine, "expert_parallel", Json(mine.expert_parallel).dump(), lent.at("expert_parallel").dump());
    ExpectSame(engine, "expert_placement", std::string(ExpertPlacementName(mine.expert_placement)),
               lent.at("expert_placement").get<std::string>());
    ExpectSame(engine, "quantization", mine.recipe, lent.at("quantization").get<std::string>());
    ExpectSame(engine, "power_of_two_scales", Json(mine.power_of_two_scales).dump(),
               lent.at("power_of_two_scales").dump());
    const int expected = mine.tp_size * mine.pp_size;
    if (lent.at("ranks").size() != static_cast<std::size_t>(expected)) {
      throw Error(ErrorCode::kCorrupt, engine + ": lend_weights: expected " + std::to_string(expected) +
                                           " ranks, got " + std::to_string(lent["ranks"].size()));
    }
    Json ranks = lent["ranks"];
    for (Json& rank : ranks) rank["endpoint"] = AsReached(rank.at("endpoint").get<std::string>(), endpoint);
    Json adapters = borrower.adapters ? AdaptersLent(engine, lent, ranks, mine.adapters) : Json::array();
    return {{"version", lent.at("version")}, {"ranks", std::move(ranks)}, {"adapters", std::move(adapters)}};
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kCorrupt, engine + ": lend_weights: " + error.what());
  }
}

}  // namespace layercast
