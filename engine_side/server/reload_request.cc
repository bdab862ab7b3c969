#include "engine_side/server/reload_request.h"

#include "layercast/error.h"

namespace layercast {

ReloadSource SourceFromJson(const nlohmann::ordered_json& params) {
  try {
    const bool path = params.contains("weights_path") && !params["weights_path"].is_null();
    const bool publisher = params.contains("publisher") && !params["publisher"].is_null();
    if (path && publisher) {
      throw Error(ErrorCode::kInvalidArgument, "reload_weights: expected 'weights_path' or 'publisher', got both");
    }
    if (path) return FromPath(params["weights_path"].get<std::string>(), params.value("is_checkpoint_format", true));
    if (!publisher) return FromOrigin();
    std::optional<std::uint64_t> step;
    if (params.contains("step") && !params["step"].is_null()) step = params["step"].get<std::uint64_t>();
    return FromPublisher(params["publisher"].get<std::string>(), params.value("lineage", std::string()), step);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, std::string("reload_weights: ") + error.what());
  }
}

}  // namespace layercast
