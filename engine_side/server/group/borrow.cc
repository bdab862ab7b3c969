#include "engine_side/server/group/borrow.h"

#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/control/rpc.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

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

}  // namespace

Json Borrow(const std::string& endpoint, const std::string& own_endpoint, const EngineLayout& mine, Deadline deadline) {
  ExpectAnother(endpoint, own_endpoint, deadline);
  const std::string engine = "engine " + endpoint;
  const Json lent = RpcClient("engine", endpoint).Call("lend_weights", Json::object(), deadline);
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
    return {{"version", lent.at("version")}, {"ranks", std::move(ranks)}};
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kCorrupt, engine + ": lend_weights: " + error.what());
  }
}

}  // namespace layercast
