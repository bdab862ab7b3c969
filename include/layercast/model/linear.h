// Linear layers, by how a rank holds its part: "weight" [rows, cols] and, where there is one, "bias" [rows].
// Used by model families; the arithmetic is that of tensor parallel engines, replicated key/value heads included.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/module.h"
#include "layercast/model/quantizable_layer.h"
#include "layercast/parallel.h"

namespace layercast {

// What all linear layers are: one "weight", perhaps a "bias".
class LAYERCAST_PUBLIC LinearLayer : public QuantizableLayer {
 protected:
  static constexpr std::uint32_t kWeight = 0;

  LinearLayer(std::string class_name, const LayerContext& context) : QuantizableLayer(std::move(class_name), context) {}
  // "weight" of this rank, its rows first, and, if asked for, "bias".
  void AddWeight(Shape shape, ShardAxis axis) { QuantizableLayer::AddWeight("weight", std::move(shape), axis); }
  void AddBias(std::int64_t rows, ShardAxis axis);
  // As Module::ParameterIndex, by the name that checkpoints use, also for the scales; and the way back.
  std::uint32_t IndexOf(std::string_view name) const;
  std::string_view CheckpointNameOf(std::uint32_t index) const;
  bool NamesReciprocal(std::string_view name) const;
  std::string_view OwnShardId(std::string_view shard_id) const;
  // A tensor that all of a parameter comes from, of the part `shard_id` where that says so: the number of a whole
  // weight, which a part may bring too.
  std::vector<PlacedPiece> PlaceWhole(std::string_view name, std::string_view shard_id, const TensorSpec& spec) const;
};

// Every rank holds all of it.
class LAYERCAST_PUBLIC ReplicatedLinear final : public LinearLayer {
 public:
  ReplicatedLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size, bool bias);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
};

// The input dimension is split; the bias is whole on every rank.
class LAYERCAST_PUBLIC RowParallelLinear final : public LinearLayer {
 public:
  RowParallelLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size, bool bias);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::string WhyNotSliced() const override;

 private:
  std::int64_t input_size_;
  std::int64_t first_column_;
};

// The output dimension is split. The base of the fused layers: it holds one shard, they hold several.
class LAYERCAST_PUBLIC ColumnParallelLinear : public LinearLayer {
 public:
  ColumnParallelLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size, bool bias);
  // With an empty shard id the tensor is all shards, one after the other: fused on disk.
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::span<const ShardName> shard_names() const override { return shard_names_; }
  std::vector<ExpectedTensor> Expected(std::uint32_t parameter, std::string_view path) const override;
  std::string WhyNotSliced() const override;

  // A part of a fused layer.
  struct Shard {
    std::string checkpoint_name;  // "q_proj"; empty: checkpoints hold it fused alone
    std::string id;               // "q"
    std::int64_t size = 0;        // rows of the whole shard
    std::int64_t rows = 0;        // of them this rank's: `rows` from `first` on
    std::int64_t first = 0;
  };

 protected:
  // `row`: the shape of one output's weights.
  ColumnParallelLinear(std::string class_name, const LayerContext& context, const Shape& row, std::vector<Shard> shards,
                       bool bias);
  // What a shard id that is none of these is told.
  virtual std::string UnknownShard(std::string_view shard_id) const;
  const std::vector<Shard>& shards() const { return shards_; }

 private:
  static std::vector<Shard> One(const ParallelConfig& parallel, std::int64_t output_size);

  const std::vector<Shard> shards_;
  std::vector<ShardName> shard_names_;
};

// A part of a MergedColumnParallelLinear. Its shard id is its tensor's index: "0", "1", ...
struct MergedShard {
  std::string checkpoint_name;  // "gate_proj"; neighbours of one name come in one tensor, one after the other
  std::int64_t output_size = 0;
};

class LAYERCAST_PUBLIC MergedColumnParallelLinear final : public ColumnParallelLinear {
 public:
  MergedColumnParallelLinear(const LayerContext& context, std::int64_t input_size,
                             const std::vector<MergedShard>& shards, bool bias);

 protected:
  std::string UnknownShard(std::string_view shard_id) const override;
};

// The same fusion, whole on every rank.
class LAYERCAST_PUBLIC MergedReplicatedLinear final : public ColumnParallelLinear {
 public:
  MergedReplicatedLinear(const LayerContext& context, std::int64_t input_size, const std::vector<MergedShard>& shards,
                         bool bias);

 protected:
  std::string UnknownShard(std::string_view shard_id) const override;
};

struct AttentionHeads {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t v_head_dim = 0;  // 0: as head_dim
};

// Grouped-query attention's fused projection: q_proj, k_proj, v_proj with the shard ids "q", "k", "v". Where tp_size
// exceeds the number of key/value heads, tp_size / num_kv_heads neighbouring ranks hold the same one.
class LAYERCAST_PUBLIC QKVParallelLinear final : public ColumnParallelLinear {
 public:
  QKVParallelLinear(const LayerContext& context, std::int64_t hidden_size, const AttentionHeads& heads, bool bias);
  const AttentionHeads& local_heads() const { return local_; }  // this rank's

 protected:
  std::string UnknownShard(std::string_view shard_id) const override;

 private:
  static AttentionHeads OfRank(const ParallelConfig& parallel, const AttentionHeads& heads);
  static std::vector<Shard> SplitHeads(const ParallelConfig& parallel, const AttentionHeads& heads);

  AttentionHeads local_;
};

}  // namespace layercast
