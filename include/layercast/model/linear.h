// Linear layers, by how a rank holds its part: "weight" [rows, cols] and, if there is one, "bias" [rows]. They are
// split as tensor parallel engines split them, replicated key/value heads included. Used by model families. All but the
// structs are Modules, and so resources.
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

// The base of all linear layers: one "weight", perhaps a "bias".
class LAYERCAST_PUBLIC LinearLayer : public QuantizableLayer {
 protected:
  static constexpr std::uint32_t kWeight = 0;

  LinearLayer(std::string class_name, const LayerContext& context) : QuantizableLayer(std::move(class_name), context) {}
  // Adds this rank's "weight", whose first dimension is its rows.
  void AddWeight(Shape shape, ShardAxis axis) { QuantizableLayer::AddWeight("weight", std::move(shape), axis); }
  void AddBias(std::int64_t rows, ShardAxis axis);
  // The index of the parameter that checkpoints call `name`, which for scales may differ from the parameter's own name.
  // Throws kNotFound.
  std::uint32_t IndexOf(std::string_view name) const;
  // What checkpoints call the parameter with that index.
  std::string_view CheckpointNameOf(std::uint32_t index) const;
  // Whether a tensor of that name holds one divided by the weight's global scale (QuantizedForm::kGlobalReciprocal).
  bool NamesReciprocal(std::string_view name) const;
  // The same shard id, in memory that lives as long as the layer. Throws kInvalidArgument if there is no such shard.
  std::string_view OwnShardId(std::string_view shard_id) const;
  // Places a tensor that fills the whole of a parameter. With a `shard_id` it is a scale of one part of a fused layer,
  // which has one for all parts (PlacedPiece::shared).
  std::vector<PlacedPiece> PlaceWhole(std::string_view name, std::string_view shard_id, const TensorSpec& spec) const;
};

// A linear layer that every rank holds whole.
class LAYERCAST_PUBLIC ReplicatedLinear final : public LinearLayer {
 public:
  ReplicatedLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size, bool bias);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
};

// A linear layer whose input dimension is split over ranks. The bias is whole on every rank.
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

// A linear layer whose output dimension is split over ranks. It is the base of the fused layers too: by itself it holds
// one shard, they hold several.
class LAYERCAST_PUBLIC ColumnParallelLinear : public LinearLayer {
 public:
  ColumnParallelLinear(const LayerContext& context, std::int64_t input_size, std::int64_t output_size, bool bias);
  // With an empty shard id, the tensor holds all shards one after the other: it is fused on disk.
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::span<const ShardName> shard_names() const override { return shard_names_; }
  std::vector<ExpectedTensor> Expected(std::uint32_t parameter, std::string_view path) const override;
  std::string WhyNotSliced() const override;

  // A part of a fused layer. Value.
  struct Shard {
    std::string checkpoint_name;  // "q_proj"; empty: checkpoints never hold this part by itself
    std::string id;               // "q"
    std::int64_t size = 0;        // rows of the whole shard
    std::int64_t rows = 0;        // how many of them this rank holds ...
    std::int64_t first = 0;       // ... from this one on
  };

 protected:
  // `row`: the shape of one output's weights.
  ColumnParallelLinear(std::string class_name, const LayerContext& context, const Shape& row, std::vector<Shard> shards,
                       bool bias);
  // The message for a shard id that this layer does not have.
  virtual std::string UnknownShard(std::string_view shard_id) const;
  const std::vector<Shard>& shards() const { return shards_; }

 private:
  static std::vector<Shard> One(const ParallelConfig& parallel, std::int64_t output_size);

  const std::vector<Shard> shards_;
  std::vector<ShardName> shard_names_;
};

// A part of a MergedColumnParallelLinear or MergedReplicatedLinear. Its shard id is the index of the checkpoint tensor
// that it comes in: "0", "1", ... Value.
struct MergedShard {
  std::string checkpoint_name;  // "gate_proj"; consecutive parts of one name come in one tensor, one after the other
  std::int64_t output_size = 0;
};

// Several linear layers of the same input, fused by rows: a rank holds its part of each, one after the other.
class LAYERCAST_PUBLIC MergedColumnParallelLinear final : public ColumnParallelLinear {
 public:
  MergedColumnParallelLinear(const LayerContext& context, std::int64_t input_size,
                             const std::vector<MergedShard>& shards, bool bias);

 protected:
  std::string UnknownShard(std::string_view shard_id) const override;
};

// Several linear layers of the same input, fused by rows, and whole on every rank.
class LAYERCAST_PUBLIC MergedReplicatedLinear final : public ColumnParallelLinear {
 public:
  MergedReplicatedLinear(const LayerContext& context, std::int64_t input_size, const std::vector<MergedShard>& shards,
                         bool bias);

 protected:
  std::string UnknownShard(std::string_view shard_id) const override;
};

// Value.
struct AttentionHeads {
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t v_head_dim = 0;  // 0: as head_dim
};

// Grouped-query attention's fused projection: q_proj, k_proj, v_proj with the shard ids "q", "k", "v". If tp_size
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
