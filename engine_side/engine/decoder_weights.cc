#include "engine_side/engine/decoder_weights.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "layercast/error.h"

namespace layercast {
namespace {

bool IsRowMajor(const CapturedBuffer& buffer) {
  if (buffer.strides.empty()) return true;
  std::int64_t expected = 1;
  for (std::size_t d = buffer.shape.size(); d-- > 0;) {
    if (buffer.shape[d] != 1 && buffer.strides[d] != expected) return false;
    expected *= buffer.shape[d];
  }
  return true;
}

// The table by name, with a mark on what was asked for.
class Table {
 public:
  explicit Table(std::span<const CapturedBuffer> buffers) {
    for (const CapturedBuffer& buffer : buffers) by_name_.emplace(buffer.name, &buffer);
  }

  const CapturedBuffer* Find(const std::string& name) {
    const auto found = by_name_.find(name);
    if (found == by_name_.end()) return nullptr;
    const CapturedBuffer& buffer = *found->second;
    if (buffer.device.kind != Device::Kind::kHost) {
      throw Error(ErrorCode::kUnsupported, "the forward pass on CPU cannot read '" + name + "', which is on a GPU");
    }
    if (!IsRowMajor(buffer)) {
      throw Error(ErrorCode::kUnsupported, "the built-in engine's forward pass reads contiguous buffers alone; '" +
                                               name + "' " + Describe(buffer.dtype, buffer.shape) + " is strided");
    }
    used_.insert(found->first);
    return &buffer;
  }

  const CapturedBuffer& Get(const std::string& name, DType dtype, const Shape& shape) {
    const CapturedBuffer* buffer = Find(name);
    if (buffer == nullptr) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the engine has no buffer '" + name + "', expected " + Describe(dtype, shape));
    }
    if (buffer->dtype != dtype || buffer->shape != shape) {
      throw Error(ErrorCode::kInvalidArgument, "buffer '" + name + "' expected " + Describe(dtype, shape) + ", got " +
                                                   Describe(buffer->dtype, buffer->shape));
    }
    return *buffer;
  }

  void CheckAllUsed() const {
    for (const auto& [name, buffer] : by_name_) {
      if (used_.contains(name)) continue;
      throw Error(ErrorCode::kUnsupported, "the built-in engine's forward pass does not know what to do with buffer '" +
                                               std::string(name) + "' " + Describe(buffer->dtype, buffer->shape));
    }
  }

 private:
  std::map<std::string_view, const CapturedBuffer*> by_name_;
  std::set<std::string_view> used_;
};

// Finds the tensors of a rank's layers in whatever kernel format they are.
class Finder {
 public:
  Finder(const DecoderConfig& config, std::span<const CapturedBuffer> buffers) : config_(config), table_(buffers) {}

  WeightView Vector(const std::string& name, std::size_t size) {
    const CapturedBuffer& buffer = table_.Get(name, config_.dtype, {static_cast<std::int64_t>(size)});
    return {buffer.address, buffer.dtype, 1, size, {}};
  }

  std::optional<WeightView> MaybeVector(const std::string& name, std::size_t size) {
    if (table_.Find(name) == nullptr) return std::nullopt;
    return Vector(name, size);
  }

  // The kernel format shows in the names and types of its scales.
  WeightView Matrix(const std::string& path, std::size_t rows, std::size_t cols) {
    const auto n = static_cast<std::int64_t>(rows);
    const auto k = static_cast<std::int64_t>(cols);
    WeightView view{.values = nullptr, .dtype = DType::kF8E4M3, .rows = rows, .cols = cols, .scale = {}};
    DType stored = DType::kF8E4M3;
    std::int64_t stored_cols = k;
    const CapturedBuffer* scale = table_.Find(path + ".weight_scale");
    if (table_.Find(path + ".weight_scale_inv") != nullptr) {  // fp8_per_block
      view.scale = Scales(path + ".weight_scale_inv", DType::kF32, {Blocks(n, 128), Blocks(k, 128)}, 128, 128);
    } else if (table_.Find(path + ".weight_scale_2") != nullptr) {  // nvfp4
      view.scale = Scales(path + ".weight_scale", DType::kF8E4M3, {n, Blocks(k, 16)}, 1, 16);
      view.scale.global = table_.Get(path + ".weight_scale_2", DType::kF32, {1}).address;
      view.dtype = DType::kF4;
      stored = DType::kU8;
      stored_cols = k / 2;
    } else if (scale == nullptr) {  // none
      view.dtype = stored = config_.dtype;
    } else if (scale->dtype == DType::kU8) {  // mxfp8
      view.scale = Scales(scale->name, DType::kU8, {n, Blocks(k, 32)}, 1, 32);
      view.scale.dtype = DType::kF8E8M0;
    } else {  // fp8_per_tensor, fp8_per_channel, int8_per_channel
      const bool whole = scale->shape.size() == 1;
      view.scale = Scales(scale->name, DType::kF32, whole ? Shape{1} : Shape{n, 1}, whole ? rows : 1, cols);
      const CapturedBuffer* values = table_.Find(path + ".weight");
      if (values != nullptr && values->dtype == DType::kI8) view.dtype = stored = DType::kI8;
    }
    view.values = table_.Get(path + ".weight", stored, {n, stored_cols}).address;
    return view;
  }

  LinearWeights Linear(const std::string& path, std::size_t rows, std::size_t cols) {
    return {Matrix(path, rows, cols), MaybeVector(path + ".bias", rows)};
  }

  Table& table() { return table_; }

 private:
  static std::int64_t Blocks(std::int64_t count, std::int64_t block) { return (count + block - 1) / block; }

  ScaleGrid Scales(const std::string& name, DType dtype, const Shape& shape, std::size_t block_rows,
                   std::size_t block_cols) {
    return {.scales = table_.Get(name, dtype, shape).address, .dtype = dtype, .rows = block_rows, .cols = block_cols};
  }

  const DecoderConfig& config_;
  Table table_;
};

DecoderLayerWeights FindLayer(Finder& find, const DecoderConfig& config, const ParallelConfig& parallel,
                              std::size_t index) {
  const std::string path = "model.layers." + std::to_string(index) + ".";
  const auto tp_size = static_cast<std::size_t>(parallel.tp_size);
  const std::size_t heads = DecoderWeights::LocalHeads(config, parallel);
  const std::size_t kv_heads = DecoderWeights::LocalKvHeads(config, parallel);
  const std::size_t attention = heads * config.head_dim;
  const std::size_t intermediate = config.intermediate_size / tp_size;
  DecoderLayerWeights layer;
  layer.input_norm = find.Vector(path + "input_layernorm.weight", config.hidden_size);
  layer.qkv = find.Linear(path + "self_attn.qkv_proj", attention + 2 * kv_heads * config.head_dim, config.hidden_size);
  layer.q_norm = find.MaybeVector(path + "self_attn.q_norm.weight", config.head_dim);
  layer.k_norm = find.MaybeVector(path + "self_attn.k_norm.weight", config.head_dim);
  layer.o = find.Linear(path + "self_attn.o_proj", config.hidden_size, attention);
  layer.post_attention_norm = find.Vector(path + "post_attention_layernorm.weight", config.hidden_size);
  layer.gate_up = find.Linear(path + "mlp.gate_up_proj", 2 * intermediate, config.hidden_size);
  layer.down = find.Linear(path + "mlp.down_proj", config.hidden_size, intermediate);
  return layer;
}

}  // namespace

std::size_t DecoderWeights::LocalHeads(const DecoderConfig& config, const ParallelConfig& parallel) {
  return config.num_heads / static_cast<std::size_t>(parallel.tp_size);
}

std::size_t DecoderWeights::LocalKvHeads(const DecoderConfig& config, const ParallelConfig& parallel) {
  return std::max<std::size_t>(1, config.num_kv_heads / static_cast<std::size_t>(parallel.tp_size));
}

DecoderWeights DecoderWeights::Find(const DecoderConfig& config, const ParallelConfig& parallel,
                                    std::span<const CapturedBuffer> buffers) {
  constexpr std::size_t kVocabPadding = 64;
  const std::size_t padded_vocab = (config.vocab_size + kVocabPadding - 1) / kVocabPadding * kVocabPadding;
  const std::size_t vocab_rows = padded_vocab / static_cast<std::size_t>(parallel.tp_size);
  Finder find(config, buffers);
  DecoderWeights weights;
  weights.embedding = find.Matrix("model.embed_tokens", vocab_rows, config.hidden_size);
  for (std::size_t i = 0; i < config.num_layers; ++i) weights.layers.push_back(FindLayer(find, config, parallel, i));
  weights.final_norm = find.Vector("model.norm.weight", config.hidden_size);
  const bool tied = find.table().Find("lm_head.weight") == nullptr;
  weights.lm_head = tied ? weights.embedding : find.Matrix("lm_head", vocab_rows, config.hidden_size);
  find.table().CheckAllUsed();
  return weights;
}

}  // namespace layercast
