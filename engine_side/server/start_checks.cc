#include "engine_side/server/start_checks.h"

#include <algorithm>
#include <string>

#include "engine_side/server/adapters/adapter_registry.h"
#include "engine_side/server/generate/generator.h"
#include "layercast/error.h"
#include "layercast/model/pipeline_stages.h"
#include "layercast/model/registry.h"
#include "src/net/keys/keys.h"

namespace layercast {
namespace {

// A decode graph allocates its whole cache at the start, so sequences on a device are limited by default.
constexpr std::int64_t kMostTokensOnDevice = 4096;

}  // namespace

EngineServiceOptions Checked(EngineServiceOptions options) {
  static_cast<void>(PauseModeNamed(options.pause_mode));
  static_cast<void>(AdapterSwitchNamed(options.adapter_switch));
  static_cast<void>(Keys::From(options.ranks.keys));
  return options;
}

ModelConfig CheckedConfig(const RankGroupOptions& ranks, const ModelFiles& files) {
  const ModelConfig config = ModelRegistry::Builtin().ConfigOf(files.description());
  ParallelConfig parallel{.tp_rank = 0, .tp_size = ranks.tp_size};
  if (ranks.expert_parallel) parallel.SpreadExperts(ranks.expert_placement);
  static_cast<void>(files.BuildTree(parallel));
  static_cast<void>(
      PipelineStages({.pp_size = ranks.pp_size, .pp_layer_partition = ranks.pp_layers}, config.num_hidden_layers));
  return config;
}

std::int64_t ModelLength(const RankGroupOptions& ranks, const ModelConfig& config) {
  const std::int64_t own = config.ContextLength();
  if (ranks.max_model_len > own) {
    throw Error(ErrorCode::kInvalidArgument, "a sequence of " + std::to_string(ranks.max_model_len) +
                                                 " tokens: the model has " + std::to_string(own) + " positions");
  }
  if (ranks.max_model_len > 0) return ranks.max_model_len;
  return ranks.on_device ? std::min(own, kMostTokensOnDevice) : own;
}

}  // namespace layercast
