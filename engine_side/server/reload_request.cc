#include "engine_side/server/reload_request.h"

#include "layercast/error.h"

namespace layercast {

CheckpointSource CheckpointFromJson(const nlohmann::ordered_json& params) {
  CheckpointSource source{.path = params.at("weights_path").get<std::string>(),
                          .load_format = params.value("load_format", std::string("auto"))};
  if (!params.contains("secondary_weights")) return source;
  for (const nlohmann::ordered_json& more : params["secondary_weights"]) {
    source.secondary.push_back({more.at("prefix").get<std::string>(), more.at("path").get<std::string>()});
  }
  return source;
}

bool IsDummy(const nlohmann::ordered_json& params) {
  return !params.contains("weights_path") && params.value("load_format", std::string()) == "dummy";
}

ReloadSource SourceFromJson(const nlohmann::ordered_json& params) {
  try {
    const bool path = params.contains("weights_path") && !params["weights_path"].is_null();
    const bool publisher = params.contains("publisher") && !params["publisher"].is_null();
    if (path && publisher) {
      throw Error(ErrorCode::kInvalidArgument, "reload_weights: expected 'weights_path' or 'publisher', got both");
    }
    if (path) {
      ReloadSource source = FromCheckpoint(CheckpointFromJson(params));
      source.is_checkpoint_format = params.value("is_checkpoint_format", true);
      return source;
    }
    if (IsDummy(params)) return FromDummy(params.value("seed", std::uint64_t{0}));
    if (!publisher) return FromOrigin();
    std::optional<std::uint64_t> step;
    if (params.contains("step") && !params["step"].is_null()) step = params["step"].get<std::uint64_t>();
    return FromPublisher(params["publisher"].get<std::string>(), params.value("lineage", std::string()), step);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, std::string("reload_weights: ") + error.what());
  }
}

}  // namespace layercast
