#include "layercast/model/gated_delta_net.h"

#include <memory>

#include "engine_side/model/layers/decay.h"
#include "engine_side/model/tree/fit.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

using Shard = ColumnParallelLinear::Shard;

DeltaNetSizes OfRank(const ParallelConfig& parallel, const DeltaNetSizes& sizes) {
  CheckParallel(parallel);
  Divide("linear_num_value_heads", sizes.num_value_heads, "linear_num_key_heads", sizes.num_key_heads);
  DeltaNetSizes local = sizes;
  local.num_key_heads = Divide("linear_num_key_heads", sizes.num_key_heads, "tp_size", parallel.tp_size);
  local.num_value_heads = sizes.num_value_heads / parallel.tp_size;
  return local;
}

std::vector<Shard> ConvShards(const ParallelConfig& parallel, const DeltaNetSizes& sizes) {
  const DeltaNetSizes local = OfRank(parallel, sizes);
  const Shard keys = {{}, {}, sizes.keys(), local.keys(), parallel.tp_rank * local.keys()};
  const Shard values = {{}, {}, sizes.values(), local.values(), parallel.tp_rank * local.values()};
  return {keys, keys, values};
}

std::unique_ptr<Module> MakeQkvz(const LayerContext& context, const DeltaNetSizes& sizes, std::int64_t hidden_size,
                                 DeltaNetRows rows) {
  const std::int64_t keys = sizes.keys(), values = sizes.values();
  if (rows == DeltaNetRows::kByKeyHead) {
    return std::make_unique<ColumnParallelLinear>(context, hidden_size, 2 * keys + 2 * values, false);
  }
  const std::vector<MergedShard> shards = {
      {"in_proj_qkv", keys}, {"in_proj_qkv", keys}, {"in_proj_qkv", values}, {"in_proj_z", values}};
  return std::make_unique<MergedColumnParallelLinear>(context, hidden_size, shards, false);
}

std::unique_ptr<Module> MakeBa(const LayerContext& context, const DeltaNetSizes& sizes, std::int64_t hidden_size,
                               DeltaNetRows rows) {
  const std::int64_t heads = sizes.num_value_heads;
  if (rows == DeltaNetRows::kByKeyHead) {
    return std::make_unique<ColumnParallelLinear>(context, hidden_size, 2 * heads, false);
  }
  const std::vector<MergedShard> shards = {{"in_proj_b", heads}, {"in_proj_a", heads}};
  return std::make_unique<MergedColumnParallelLinear>(context, hidden_size, shards, false);
}

}  // namespace

DeltaNetConv1d::DeltaNetConv1d(const LayerContext& context, const DeltaNetSizes& sizes)
    : ColumnParallelLinear("DeltaNetConv1d", context.Unquantized(), Shape{1, sizes.conv_kernel},
                           ConvShards(context.parallel, sizes), false) {}

GatedDeltaNet::GatedDeltaNet(const LayerContext& context, const DeltaNetSizes& sizes, std::int64_t hidden_size,
                             const DeltaNetOptions& options)
    : Module("GatedDeltaNet"), parallel_(context.parallel), local_(OfRank(context.parallel, sizes)), options_(options) {
  AddChild("in_proj_qkvz", MakeQkvz(context, sizes, hidden_size, options.rows));
  AddChild("in_proj_ba", MakeBa(context, sizes, hidden_size, options.rows));
  AddChild("conv1d", std::make_unique<DeltaNetConv1d>(context, sizes));
  LayerContext plain = context;
  plain.norm = NormStyle::kWeight;  // even if the model's other norms use one plus their weight
  AddChild("norm", std::make_unique<RMSNorm>(plain, sizes.value_head_dim, options.norm_epsilon));
  AddChild("out_proj", std::make_unique<RowParallelLinear>(context, sizes.values(), hidden_size, false));
  AddParameter({{"A_log", DType::kF32, {local_.num_value_heads}}, ShardAxis::kRows, false, {}});
  AddDerived(DecayOf(parameters()[0].spec));
  AddParameter({{"dt_bias", context.dtype, {local_.num_value_heads}}, ShardAxis::kRows, false, {}});
}

std::vector<PlacedPiece> GatedDeltaNet::Place(std::string_view name, std::string_view /*shard_id*/,
                                              const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  return PlaceEqualParts(parallel_, index, parameters()[index].spec, spec);
}

}  // namespace layercast
