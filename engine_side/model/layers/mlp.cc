#include "layercast/model/mlp.h"

#include <memory>
#include <vector>

#include "engine_side/model/tree/fit.h"
#include "layercast/model/linear.h"

namespace layercast {

GatedMlp::GatedMlp(const LayerContext& context, const ModelConfig& config, bool bias,
                   std::optional<std::int64_t> intermediate_size, std::string_view size_field)
    : Module("GatedMlp"), hidden_act_(config.hidden_act) {
  const std::int64_t size = intermediate_size.value_or(config.intermediate_size);
  Divide(size_field, size, "tp_size", context.parallel.tp_size);  // the error names the field that the user knows
  const std::vector<MergedShard> shards = {{"gate_proj", size}, {"up_proj", size}};
  AddChild("gate_up_proj", std::make_unique<MergedColumnParallelLinear>(context, config.hidden_size, shards, bias));
  AddChild("down_proj", std::make_unique<RowParallelLinear>(context, size, config.hidden_size, bias));
}

Mlp::Mlp(const LayerContext& context, const ModelConfig& config, bool bias,
         std::optional<std::int64_t> intermediate_size, std::string_view size_field)
    : Module("Mlp"), hidden_act_(config.hidden_act) {
  const std::int64_t size = intermediate_size.value_or(config.intermediate_size);
  Divide(size_field, size, "tp_size", context.parallel.tp_size);
  AddChild("up_proj", std::make_unique<ColumnParallelLinear>(context, config.hidden_size, size, bias));
  AddChild("down_proj", std::make_unique<RowParallelLinear>(context, size, config.hidden_size, bias));
}

}  // namespace layercast
