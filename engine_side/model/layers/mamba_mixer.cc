#include "layercast/model/mamba_mixer.h"

#include <memory>
#include <utility>

#include "engine_side/model/layers/decay.h"
#include "engine_side/model/tree/fit.h"

namespace layercast {
namespace {

using Shard = ColumnParallelLinear::Shard;

MambaSizes OfRank(const ParallelConfig& parallel, const MambaSizes& sizes) {
  CheckParallel(parallel);
  Divide(sizes.heads_field, sizes.num_heads, "n_groups", sizes.num_groups);
  MambaSizes local = sizes;
  local.num_heads = Divide(sizes.heads_field, sizes.num_heads, "tp_size", parallel.tp_size);
  if (sizes.num_groups > 1) local.num_groups = Divide("n_groups", sizes.num_groups, "tp_size", parallel.tp_size);
  return local;
}

Shard ByHead(const ParallelConfig& parallel, std::int64_t whole, std::int64_t rows) {
  return {{}, {}, whole, rows, parallel.tp_rank * rows};
}

// The shards of the convolution's channels: x, B, C.
std::vector<Shard> ConvShards(const ParallelConfig& parallel, const MambaSizes& sizes) {
  const MambaSizes local = OfRank(parallel, sizes);
  const std::int64_t rows = local.num_groups * sizes.state_size;
  const Shard group = {
      {}, {}, sizes.num_groups * sizes.state_size, rows, sizes.num_groups == 1 ? 0 : parallel.tp_rank * rows};
  return {ByHead(parallel, sizes.inner(), local.inner()), group, group};
}

std::vector<Shard> InProjectionShards(const ParallelConfig& parallel, const MambaSizes& sizes) {
  const MambaSizes local = OfRank(parallel, sizes);
  std::vector<Shard> shards = ConvShards(parallel, sizes);
  shards.insert(shards.begin(), ByHead(parallel, sizes.inner(), local.inner()));
  shards.push_back(ByHead(parallel, sizes.num_heads, local.num_heads));
  return shards;
}

}  // namespace

MambaInProjection::MambaInProjection(const LayerContext& context, const MambaSizes& sizes, std::int64_t hidden_size,
                                     bool bias)
    : ColumnParallelLinear("MambaInProjection", context, Shape{hidden_size},
                           InProjectionShards(context.parallel, sizes), bias) {}

MambaConv1d::MambaConv1d(const LayerContext& context, const MambaSizes& sizes, bool bias)
    : ColumnParallelLinear("MambaConv1d", context.Unquantized(), Shape{1, sizes.conv_kernel},
                           ConvShards(context.parallel, sizes), bias) {}

MambaGatedNorm::MambaGatedNorm(const LayerContext& context, const MambaSizes& sizes)
    : Module("MambaGatedNorm"), parallel_(context.parallel) {
  AddParameter({{"weight", context.dtype, {OfRank(context.parallel, sizes).inner()}}, ShardAxis::kRows, false, {}});
}

std::vector<PlacedPiece> MambaGatedNorm::Place(std::string_view name, std::string_view /*shard_id*/,
                                               const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  return PlaceEqualParts(parallel_, index, parameters()[index].spec, spec);
}

MambaMixer::MambaMixer(const LayerContext& context, const MambaSizes& sizes, std::int64_t hidden_size,
                       const MambaOptions& options)
    : Module("MambaMixer"),
      parallel_(context.parallel),
      sizes_(sizes),
      local_(OfRank(context.parallel, sizes)),
      options_(options) {
  AddChild("in_proj", std::make_unique<MambaInProjection>(context, sizes, hidden_size, options.bias));
  AddChild("conv1d", std::make_unique<MambaConv1d>(context, sizes, options.conv_bias));
  AddChild("norm", std::make_unique<MambaGatedNorm>(context, sizes));
  AddChild("out_proj", std::make_unique<RowParallelLinear>(context, sizes.inner(), hidden_size, options.bias));
  AddParameter({{"A_log", DType::kF32, {local_.num_heads}}, ShardAxis::kRows, false, {}});
  AddDerived(DecayOf(parameters()[0].spec));
  for (const char* name : {"D", "dt_bias"}) {
    AddParameter({{name, context.dtype, {local_.num_heads}}, ShardAxis::kRows, false, {}});
  }
}

std::vector<PlacedPiece> MambaMixer::Place(std::string_view name, std::string_view /*shard_id*/,
                                           const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  return PlaceEqualParts(parallel_, index, parameters()[index].spec, spec);
}

}  // namespace layercast
