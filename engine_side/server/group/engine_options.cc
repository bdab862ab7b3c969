#include "engine_side/server/group/engine_options.h"

#include <nlohmann/json.hpp>

#include "layercast/error.h"

namespace layercast {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(HeldScales, inputs, kv_cache)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KeyOptions, folder, secret, insecure, sign, trust, allow_unsigned)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(EngineOptions, engine, model, draft, tp_size, pp_size, pp_layers, expert_parallel,
                                   expert_placement, recipe, power_of_two_scales, requantize, scales, weight_rules,
                                   chunk_bytes, buffer_limit, channel, relay, keep_source, delta, keys, commit,
                                   max_num_seqs, max_model_len, adapter_slots, host_adapters, max_adapter_rank,
                                   adapter_modules, adapter_dtype, noise, keep_previous)

std::string ToArgument(const EngineOptions& options) { return nlohmann::json(options).dump(); }

EngineOptions EngineOptionsFrom(const std::string& argument) {
  try {
    return nlohmann::json::parse(argument).get<EngineOptions>();
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument,
                "--options: expected an engine's options as JSON: " + std::string(error.what()));
  }
}

}  // namespace layercast
