#include "layercast/model/linear.h"

#include <algorithm>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

std::int64_t PerRank(const ParallelConfig& parallel, std::string_view name, std::int64_t size) {
  CheckParallel(parallel);
  return Divide(name, size, "tp_size", parallel.tp_size);
}

std::vector<ColumnParallelLinear::Shard> Split(const ParallelConfig& parallel, const std::vector<MergedShard>& shards) {
  std::vector<ColumnParallelLinear::Shard> split;
  int tensor = -1;
  for (const MergedShard& shard : shards) {
    if (split.empty() || split.back().checkpoint_name != shard.checkpoint_name) ++tensor;
    const std::int64_t rows = PerRank(parallel, shard.checkpoint_name, shard.output_size);
    split.push_back({shard.checkpoint_name, std::to_string(tensor), shard.output_size, rows, parallel.tp_rank * rows});
  }
  return split;
}

std::string NotAnIndex(std::size_t shards, std::string_view shard_id) {
  return "Shard id should be between 0 and " + std::to_string(shards - 1) + ". Got shard id " + std::string(shard_id) +
         ".";
}

}  // namespace

ReplicatedLinear::ReplicatedLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size,
                                   bool bias)
    : LinearLayer("ReplicatedLinear", context) {
  AddWeight({output_size, input_size}, ShardAxis::kNone);
  if (bias) AddBias(output_size, ShardAxis::kNone);
}

std::vector<PlacedPiece> ReplicatedLinear::Place(std::string_view name, std::string_view shard_id,
                                                 const TensorSpec& spec) const {
  return PlaceWhole(name, shard_id, spec);
}

RowParallelLinear::RowParallelLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size,
                                     bool bias)
    : LinearLayer("RowParallelLinear", context), input_size_(input_size) {
  const std::int64_t columns = PerRank(context.parallel, "input_size", input_size);
  first_column_ = context.parallel.tp_rank * columns;
  AddWeight({output_size, columns}, ShardAxis::kCols);
  if (bias) AddBias(output_size, ShardAxis::kNone);
}

std::vector<PlacedPiece> RowParallelLinear::Place(std::string_view name, std::string_view shard_id,
                                                  const TensorSpec& spec) const {
  const std::uint32_t index = IndexOf(name);
  const TensorSpec& local = parameters()[index].spec;
  if (parameters()[index].shard_axis != ShardAxis::kCols) return PlaceWhole(name, shard_id, spec);
  const std::int64_t unit = UnitsOf(index).cols;
  CheckFits(spec, local.dtype, {local.shape[0], CeilDivide(input_size_, unit)});
  return {{index, Box::Slice(spec.shape, 1, first_column_ / unit, local.shape[1]), Box::Whole(local.shape), {}}};
}

std::string RowParallelLinear::WhyNotSliced() const {
  const std::int64_t block = quantized_form()->block_cols;
  const std::int64_t columns = parameters()[kWeight].spec.shape[1];
  const bool whole = columns % block == 0 || columns == input_size_;
  if (whole || quantized_form()->scales != QuantizedForm::Scales::kBlock) return {};
  return NotWholeBlocks("columns", first_column_, first_column_ + columns, input_size_, block);
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
    : LinearLayer(std::move(class_name), context), shards_(std::move(shards)) {
  std::int64_t rows = 0;
  for (const Shard& shard : shards_) {
    rows += shard.rows;
    const bool is_new = shard_names_.empty() || shard_names_.back().checkpoint_name != shard.checkpoint_name;
    if (!shard.checkpoint_name.empty() && is_new) shard_names_.push_back({shard.checkpoint_name, shard.id});
  }
  Shape shape = row;
  shape.insert(shape.begin(), rows);
  AddWeight(std::move(shape), ShardAxis::kRows);
  if (bias) AddBias(rows, ShardAxis::kRows);
}

std::vector<PlacedPiece> ColumnParallelLinear::Place(std::string_view name, std::string_view shard_id,
                                                     const TensorSpec& spec) const {
  const std::uint32_t index = IndexOf(name);
  const TensorSpec& local = parameters()[index].spec;
  const bool fused = shard_id.empty();
  if (parameters()[index].shard_axis == ShardAxis::kNone) return PlaceWhole(name, shard_id, spec);
  const std::int64_t unit = UnitsOf(index).rows;
  Shape expected = local.shape;
  expected[0] = 0;
  for (const Shard& shard : shards_) {
    if (fused || shard.id == shard_id) expected[0] += CeilDivide(shard.size, unit);
  }
  if (expected[0] == 0) throw Error(ErrorCode::kInvalidArgument, "has a wrong shard: " + UnknownShard(shard_id));
  CheckFits(spec, local.dtype, expected);

  std::vector<PlacedPiece> pieces;
  std::int64_t source = 0;       // row at which the shard begins in the tensor
  std::int64_t destination = 0;  // row at which it begins in the parameter
  for (const Shard& shard : shards_) {
    const std::int64_t rows = CeilDivide(shard.rows, unit);
    if (fused || shard.id == shard_id) {
      pieces.push_back({index, Box::Slice(expected, 0, source + shard.first / unit, rows),
                        Box::Slice(local.shape, 0, destination, rows), shard.id});
      source += CeilDivide(shard.size, unit);
    }
    destination += rows;
  }
  return pieces;
}

std::vector<ExpectedTensor> ColumnParallelLinear::Expected(std::uint32_t parameter, std::string_view path) const {
  if (shard_names_.empty() || parameters()[parameter].shard_axis == ShardAxis::kNone) {
    return Module::Expected(parameter, path);
  }
  const TensorSpec& spec = parameters()[parameter].spec;
  const std::int64_t unit = UnitsOf(parameter).rows;
  const std::string_view parent = ParentPath(path);
  std::vector<ExpectedTensor> tensors;
  std::int64_t row = 0;
  for (const Shard& shard : shards_) {
    const std::int64_t rows = CeilDivide(shard.rows, unit);
    std::string name = JoinPath(JoinPath(parent, shard.checkpoint_name), CheckpointNameOf(parameter));
    if (!tensors.empty() && tensors.back().name == name) {
      tensors.back().destination.extent[0] += rows;
    } else {
      tensors.push_back({std::move(name), Box::Slice(spec.shape, 0, row, rows)});
    }
    row += rows;
  }
  return tensors;
}

// Every shard must be whole blocks, so that the next one begins at a block's boundary. Only the last shard may end with
// a partial block, and only if it is not split among ranks.
std::string ColumnParallelLinear::WhyNotSliced() const {
  if (quantized_form()->scales != QuantizedForm::Scales::kBlock) return {};
  const std::int64_t block = quantized_form()->block_rows;
  for (const Shard& shard : shards_) {
    const bool is_last = &shard == &shards_.back() && shard.rows == shard.size;
    if (shard.rows % block == 0 || is_last) continue;
    const std::string of = shard.checkpoint_name.empty() ? "" : " of '" + shard.checkpoint_name + "'";
    return NotWholeBlocks("rows" + of, shard.first, shard.first + shard.rows, shard.size, block);
  }
  return {};
}

std::string ColumnParallelLinear::UnknownShard(std::string_view shard_id) const {
  return class_name() + " has no shards. Got shard id " + std::string(shard_id) + ".";
}

MergedColumnParallelLinear::MergedColumnParallelLinear(const LayerContext& context, std::int64_t input_size,
                                                       const std::vector<MergedShard>& shards, bool bias)
    : ColumnParallelLinear("MergedColumnParallelLinear", context, Shape{input_size}, Split(context.parallel, shards),
                           bias) {}

std::string MergedColumnParallelLinear::UnknownShard(std::string_view shard_id) const {
  return NotAnIndex(shard_names().size(), shard_id);
}

MergedReplicatedLinear::MergedReplicatedLinear(const LayerContext& context, std::int64_t input_size,
                                               const std::vector<MergedShard>& shards, bool bias)
    : ColumnParallelLinear("MergedReplicatedLinear", context, Shape{input_size}, Split({}, shards), bias) {}

std::string MergedReplicatedLinear::UnknownShard(std::string_view shard_id) const {
  return NotAnIndex(shard_names().size(), shard_id);
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
