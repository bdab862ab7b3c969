#include "layercast/model/linear.h"

#include <algorithm>
#include <utility>

#include "engine_side/model/fit.h"
#include "engine_side/model/path.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::uint32_t kWeight = 0;  // the order in which parameters are added

Parameter WeightOf(const LayerContext& context, Shape shape, ShardAxis axis) {
  return {{"weight", context.dtype, std::move(shape)}, axis, context.quantize, {}};
}

Parameter BiasOf(const LayerContext& context, std::int64_t size, ShardAxis axis) {
  return {{"bias", context.dtype, {size}}, axis, false, {}};
}

std::int64_t PerRank(const ParallelConfig& parallel, std::string_view name, std::int64_t size) {
  CheckParallel(parallel);
  return Divide(name, size, "tp_size", parallel.tp_size);
}

}  // namespace

ReplicatedLinear::ReplicatedLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size,
                                   bool bias)
    : Module("ReplicatedLinear") {
  AddParameter(WeightOf(context, {output_size, input_size}, ShardAxis::kNone));
  if (bias) AddParameter(BiasOf(context, output_size, ShardAxis::kNone));
}

RowParallelLinear::RowParallelLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size,
                                     bool bias)
    : Module("RowParallelLinear"), input_size_(input_size) {
  const std::int64_t columns = PerRank(context.parallel, "input_size", input_size);
  first_column_ = context.parallel.tp_rank * columns;
  AddParameter(WeightOf(context, {output_size, columns}, ShardAxis::kCols));
  if (bias) AddParameter(BiasOf(context, output_size, ShardAxis::kNone));
}

std::vector<PlacedPiece> RowParallelLinear::Place(std::string_view name, std::string_view shard_id,
                                                  const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  if (index != kWeight) return Module::Place(name, shard_id, spec);
  const TensorSpec& local = parameters()[index].spec;
  CheckFits(spec, local.dtype, {local.shape[0], input_size_});
  return {{index, Box::Slice(spec.shape, 1, first_column_, local.shape[1]), Box::Whole(local.shape), {}}};
}

ColumnParallelLinear::ColumnParallelLinear(const LayerContext& context, std::int64_t input_size,
                                           std::int64_t output_size, bool bias)
    : ColumnParallelLinear("ColumnParallelLinear", context, Shape{input_size}, One(context.parallel, output_size),
                           bias) {}

std::vector<ColumnParallelLinear::Shard> ColumnParallelLinear::One(const ParallelConfig& parallel,
                                                                   std::int64_t output_size) {
  const std::int64_t rows = PerRank(parallel, "output_size", output_size);
  return {{{}, {}, output_size, rows, parallel.tp_rank * rows}};
}

ColumnParallelLinear::ColumnParallelLinear(std::string class_name, const LayerContext& context, const Shape& row,
                                           std::vector<Shard> shards, bool bias)
    : Module(std::move(class_name)), shards_(std::move(shards)) {
  std::int64_t rows = 0;
  for (const Shard& shard : shards_) {
    rows += shard.rows;
    if (!shard.checkpoint_name.empty()) shard_names_.push_back({shard.checkpoint_name, shard.id});
  }
  Shape shape = row;
  shape.insert(shape.begin(), rows);
  AddParameter(WeightOf(context, std::move(shape), ShardAxis::kRows));
  if (bias) AddParameter(BiasOf(context, rows, ShardAxis::kRows));
}

std::vector<PlacedPiece> ColumnParallelLinear::Place(std::string_view name, std::string_view shard_id,
                                                     const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  const TensorSpec& local = parameters()[index].spec;
  const bool fused = shard_id.empty();
  Shape expected = local.shape;
  expected[0] = 0;
  for (const Shard& shard : shards_) {
    if (fused || shard.id == shard_id) expected[0] += shard.size;
  }
  if (expected[0] == 0) throw Error(ErrorCode::kInvalidArgument, "has a wrong shard: " + UnknownShard(shard_id));
  CheckFits(spec, local.dtype, expected);

  std::vector<PlacedPiece> pieces;
  std::int64_t source = 0;       // where the shard begins in the tensor
  std::int64_t destination = 0;  // and in the parameter
  for (const Shard& shard : shards_) {
    if (fused || shard.id == shard_id) {
      pieces.push_back({index, Box::Slice(expected, 0, source + shard.first, shard.rows),
                        Box::Slice(local.shape, 0, destination, shard.rows), shard.id});
      source += shard.size;
    }
    destination += shard.rows;
  }
  return pieces;
}

std::vector<ExpectedTensor> ColumnParallelLinear::Expected(std::uint32_t parameter, std::string_view path) const {
  if (shard_names_.empty()) return Module::Expected(parameter, path);
  const TensorSpec& spec = parameters()[parameter].spec;
  const std::string_view parent = ParentPath(path);
  std::vector<ExpectedTensor> tensors;
  std::int64_t row = 0;
  for (const Shard& shard : shards_) {
    tensors.push_back(
        {JoinPath(JoinPath(parent, shard.checkpoint_name), spec.name), Box::Slice(spec.shape, 0, row, shard.rows)});
    row += shard.rows;
  }
  return tensors;
}

std::string ColumnParallelLinear::UnknownShard(std::string_view shard_id) const {
  return class_name() + " has no shards. Got shard id " + std::string(shard_id) + ".";
}

MergedColumnParallelLinear::MergedColumnParallelLinear(const LayerContext& context, std::int64_t input_size,
                                                       const std::vector<MergedShard>& shards, bool bias)
    : ColumnParallelLinear("MergedColumnParallelLinear", context, Shape{input_size}, Split(context.parallel, shards),
                           bias) {}

std::vector<ColumnParallelLinear::Shard> MergedColumnParallelLinear::Split(const ParallelConfig& parallel,
                                                                           const std::vector<MergedShard>& shards) {
  std::vector<Shard> split;
  for (const MergedShard& shard : shards) {
    const std::int64_t rows = PerRank(parallel, shard.checkpoint_name, shard.output_size);
    split.push_back(
        {shard.checkpoint_name, std::to_string(split.size()), shard.output_size, rows, parallel.tp_rank * rows});
  }
  return split;
}

std::string MergedColumnParallelLinear::UnknownShard(std::string_view shard_id) const {
  return "Shard id should be between 0 and " + std::to_string(shards().size() - 1) + ". Got shard id " +
         std::string(shard_id) + ".";
}

QKVParallelLinear::QKVParallelLinear(const LayerContext& context, std::int64_t hidden_size, const AttentionHeads& heads,
                                     bool bias)
    : ColumnParallelLinear("QKVParallelLinear", context, Shape{hidden_size}, SplitHeads(context.parallel, heads), bias),
      local_(OfRank(context.parallel, heads)) {}

AttentionHeads QKVParallelLinear::OfRank(const ParallelConfig& parallel, const AttentionHeads& heads) {
  AttentionHeads local = heads;
  local.num_heads = PerRank(parallel, "num_attention_heads", heads.num_heads);
  const bool replicated = parallel.tp_size > heads.num_kv_heads;
  local.num_kv_heads = replicated ? 1 : PerRank(parallel, "num_key_value_heads", heads.num_kv_heads);
  if (local.v_head_dim == 0) local.v_head_dim = heads.head_dim;
  return local;
}

std::vector<ColumnParallelLinear::Shard> QKVParallelLinear::SplitHeads(const ParallelConfig& parallel,
                                                                       const AttentionHeads& heads) {
  const AttentionHeads local = OfRank(parallel, heads);
  const std::int64_t rank = parallel.tp_rank;
  const std::int64_t tp = parallel.tp_size;
  const bool replicated = tp > heads.num_kv_heads;
  const std::int64_t replicas = replicated ? Divide("tp_size", tp, "num_key_value_heads", heads.num_kv_heads) : 1;
  const auto shard = [](const char* name, const char* id, std::int64_t whole, std::int64_t rows, std::int64_t index) {
    return Shard{name, id, whole, rows, index * rows};
  };
  return {
      shard("q_proj", "q", heads.num_heads * local.head_dim, local.num_heads * local.head_dim, rank),
      shard("k_proj", "k", heads.num_kv_heads * local.head_dim, local.num_kv_heads * local.head_dim, rank / replicas),
      shard("v_proj", "v", heads.num_kv_heads * local.v_head_dim, local.num_kv_heads * local.v_head_dim,
            rank / replicas)};
}

std::string QKVParallelLinear::UnknownShard(std::string_view shard_id) const {
  return "Shard id for QKVParallelLinear should be 'q', 'k', or 'v', got shard id " + std::string(shard_id) + ".";
}

}  // namespace layercast
