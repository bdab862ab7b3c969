#include "tests/engine_side/engine/cpu/tiny_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {
namespace {

// About normal, a function of its arguments.
double ValueAt(const std::string& name, std::size_t row, std::size_t col) {
  std::uint64_t bits = std::hash<std::string>()(name) ^ (row * 0x9e3779b97f4a7c15U) ^ (col * 0xc2b2ae3d27d4eb4fU);
  double sum = 0.0;
  for (int i = 0; i < 4; ++i) {
    bits = (bits ^ (bits >> 29)) * 0xbf58476d1ce4e5b9U;
    bits ^= bits >> 32;
    sum += static_cast<double>(bits >> 11) * 0x1.0p-53 - 0.5;
  }
  return sum * 1.7;
}

void Store(DType dtype, double value, std::byte* to) {
  std::vector<float> rounded = {static_cast<float>(value)};
  RoundTo(dtype, rounded);
  const auto bits = std::bit_cast<std::uint32_t>(rounded[0]);
  if (dtype == DType::kF32) std::memcpy(to, &bits, 4);
  if (dtype == DType::kBF16) std::memcpy(to, reinterpret_cast<const char*>(&bits) + 2, 2);
}

// Some normal f8_e4m3 value: the sign and the low bits come from the number.
std::byte ToF8(double value) {
  const auto low = static_cast<unsigned>(std::fabs(value) * 1e6) % 24;
  return static_cast<std::byte>((value < 0.0 ? 0x80U : 0U) | (0x28U + low));
}

std::vector<std::size_t> Range(std::size_t first, std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

void Append(std::vector<std::size_t>& indices, std::size_t first, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) indices.push_back(first + i);
}

ModelConfig TinyConfig(const TinyOptions& options) {
  ModelConfig config;
  config.dtype = options.dtype;
  config.num_hidden_layers = TinySizes::kLayers;
  config.hidden_size = TinySizes::kHidden;
  config.intermediate_size = TinySizes::kIntermediate;
  config.num_attention_heads = TinySizes::kHeads;
  config.num_key_value_heads = TinySizes::kKvHeads;
  config.head_dim = TinySizes::kHeadDim;
  config.vocab_size = TinySizes::kVocabulary;
  config.max_position_embeddings = TinySizes::kMaxTokens;
  config.tie_word_embeddings = options.tied;
  config.layer_types = {"full_attention", options.window == 0 ? "full_attention" : "sliding_attention"};
  config.sliding_window = static_cast<std::int64_t>(options.window);
  return config;
}

MoeConfig TinyMoe(const TinyOptions& options) {
  MoeConfig moe;
  moe.num_experts = TinySizes::kExperts;
  moe.num_experts_per_tok = 2;
  moe.intermediate_size = moe.shared_intermediate_size = TinySizes::kIntermediate;
  moe.sparse_layers = {false, options.experts};
  return moe;
}

std::unique_ptr<Module> MakeTinyFeedForward(const LayerContext& context, const ModelConfig& config,
                                            const TinyOptions& options, std::int64_t layer) {
  const MoeConfig moe = TinyMoe(options);
  if (!moe.sparse_layers[static_cast<std::size_t>(layer)]) {
    return std::make_unique<GatedMlp>(context, config, options.bias);
  }
  return std::make_unique<MixtureOfExperts>(context, config, moe,
                                            MoeOptions{.shared_name = "shared_expert", .shared_gate = true});
}

std::unique_ptr<Module> TinyTree(const TinyOptions& options, const ParallelConfig& parallel) {
  const ModelConfig config = TinyConfig(options);
  const LayerContext context{.parallel = parallel, .dtype = options.dtype};
  const AttentionOptions attention{.qkv_bias = options.bias, .output_bias = options.bias, .qk_norm = options.qk_norm};
  return std::make_unique<DecoderForCausalLM>("TinyForCausalLM", context, config, [&](std::int64_t layer) {
    return std::make_unique<DecoderLayer>(context, config,
                                          std::make_unique<Attention>(context, config, layer, attention),
                                          MakeTinyFeedForward(context, config, options, layer));
  });
}

}  // namespace

Rope TinyRope(const RotaryEmbedding& embedding) {
  Rope rope;
  for (std::int64_t i = 0; i < embedding.dim; i += 2) {
    const double exponent = -static_cast<double>(i) / static_cast<double>(embedding.dim);
    rope.inverse_frequencies.push_back(static_cast<float>(std::pow(embedding.rope.theta, exponent)));
  }
  return rope;
}

TinyModel::TinyModel(const TinyOptions& options, const ParallelConfig& parallel)
    : options_(options), parallel_(parallel), tree_(TinyTree(options, parallel)) {
  const auto rank = static_cast<std::size_t>(parallel.tp_rank);
  const std::size_t vocab_rows = 128 / static_cast<std::size_t>(parallel.tp_size);
  const auto hidden = Range(0, TinySizes::kHidden);
  AddMatrix("model.embed_tokens", Range(rank * vocab_rows, vocab_rows), hidden, false);
  for (std::size_t i = 0; i < TinySizes::kLayers; ++i) AddLayer(i);
  AddVector("model.norm.weight", TinySizes::kHidden, 1.0);
  if (!options.tied) AddMatrix("lm_head", Range(rank * vocab_rows, vocab_rows), hidden, false);
}

CapturedBuffer& TinyModel::buffer(const std::string& name) {
  for (CapturedBuffer& candidate : buffers_) {
    if (candidate.name == name) return candidate;
  }
  throw std::out_of_range(name);
}

void TinyModel::AddLayer(std::size_t index) {
  const std::string path = "model.layers." + std::to_string(index) + ".";
  const auto rank = static_cast<std::size_t>(parallel_.tp_rank);
  const auto tp = static_cast<std::size_t>(parallel_.tp_size);
  const std::size_t dim = TinySizes::kHeadDim;
  const std::size_t queries = TinySizes::kHeads / tp * dim;
  const std::size_t kv_heads = std::max<std::size_t>(1, TinySizes::kKvHeads / tp);
  const std::size_t kv_rank = tp > TinySizes::kKvHeads ? rank / (tp / TinySizes::kKvHeads) : rank;
  const std::size_t all_queries = TinySizes::kHeads * dim;
  const std::size_t all_keys = TinySizes::kKvHeads * dim;
  std::vector<std::size_t> qkv = Range(rank * queries, queries);
  Append(qkv, all_queries + kv_rank * kv_heads * dim, kv_heads * dim);
  Append(qkv, all_queries + all_keys + kv_rank * kv_heads * dim, kv_heads * dim);

  const auto hidden = Range(0, TinySizes::kHidden);
  AddVector(path + "input_layernorm.weight", TinySizes::kHidden, 1.0);
  AddMatrix(path + "self_attn.qkv_proj", qkv, hidden, true);
  if (options_.bias) {
    AddBias(path + "self_attn.qkv_proj.bias", qkv);
    AddBias(path + "self_attn.o_proj.bias", hidden);
  }
  if (options_.qk_norm) {
    AddVector(path + "self_attn.q_norm.weight", dim, 1.0);
    AddVector(path + "self_attn.k_norm.weight", dim, 1.0);
  }
  AddMatrix(path + "self_attn.o_proj", hidden, Range(rank * queries, queries), true);
  AddVector(path + "post_attention_layernorm.weight", TinySizes::kHidden, 1.0);
  if (options_.experts && index == 1) {
    AddMixture(path + "mlp");
  } else {
    AddMlp(path + "mlp", options_.bias);
  }
}

std::vector<std::size_t> TinyModel::Intermediate() const {
  const std::size_t width = TinySizes::kIntermediate / static_cast<std::size_t>(parallel_.tp_size);
  return Range(static_cast<std::size_t>(parallel_.tp_rank) * width, width);
}

std::vector<std::size_t> TinyModel::GateUp() const {
  std::vector<std::size_t> rows = Intermediate();
  Append(rows, TinySizes::kIntermediate + rows.front(), rows.size());
  return rows;
}

void TinyModel::AddMlp(const std::string& path, bool bias) {
  const auto hidden = Range(0, TinySizes::kHidden);
  AddMatrix(path + ".gate_up_proj", GateUp(), hidden, true);
  AddMatrix(path + ".down_proj", hidden, Intermediate(), true);
  if (!bias) return;
  AddBias(path + ".gate_up_proj.bias", GateUp());
  AddBias(path + ".down_proj.bias", hidden);
}

void TinyModel::AddMixture(const std::string& path) {
  const auto hidden = Range(0, TinySizes::kHidden);
  AddMatrix(path + ".gate", Range(0, TinySizes::kExperts), hidden, false);
  AddStack(path + ".experts.w13_weight", GateUp(), hidden);
  AddStack(path + ".experts.w2_weight", hidden, Intermediate());
  AddMlp(path + ".shared_expert", false);
  AddMatrix(path + ".shared_expert_gate", {0}, hidden, false);
}

void TinyModel::AddStack(const std::string& name, const std::vector<std::size_t>& rows,
                         const std::vector<std::size_t>& cols) {
  const Shape shape = {TinySizes::kExperts, static_cast<std::int64_t>(rows.size()),
                       static_cast<std::int64_t>(cols.size())};
  std::byte* to = AddBuffer(name, options_.dtype, shape);
  places_[name] = {rows, cols};
  for (std::size_t expert = 0; expert < TinySizes::kExperts; ++expert) {
    for (const std::size_t r : rows) {
      for (const std::size_t c : cols) {
        Store(options_.dtype, 0.3 * ValueAt(name + std::to_string(expert), r, c), to);
        to += BitsPerElement(options_.dtype) / 8;
      }
    }
  }
}

void TinyModel::AddVector(const std::string& name, std::size_t size, double center) {
  std::byte* to = AddBuffer(name, options_.dtype, {static_cast<std::int64_t>(size)});
  const auto element = static_cast<std::size_t>(BitsPerElement(options_.dtype)) / 8;
  for (std::size_t i = 0; i < size; ++i) {
    Store(options_.dtype, center + 0.2 * ValueAt(name, i, 0), to + i * element);
  }
}

void TinyModel::AddBias(const std::string& name, const std::vector<std::size_t>& rows) {
  std::byte* to = AddBuffer(name, options_.dtype, {static_cast<std::int64_t>(rows.size())});
  const auto element = static_cast<std::size_t>(BitsPerElement(options_.dtype)) / 8;
  for (std::size_t i = 0; i < rows.size(); ++i)
    Store(options_.dtype, 0.2 * ValueAt(name, rows[i], 0), to + i * element);
}

void TinyModel::AddMatrix(const std::string& path, const std::vector<std::size_t>& rows,
                          const std::vector<std::size_t>& cols, bool quantized) {
  const Shape shape = {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(cols.size())};
  const bool f8 = quantized && options_.scale != TinyScale::kNone;
  const DType dtype = f8 ? DType::kF8E4M3 : options_.dtype;
  const auto element = static_cast<std::size_t>(BitsPerElement(dtype)) / 8;
  std::byte* to = AddBuffer(path + ".weight", dtype, shape);
  places_[path + ".weight"] = {rows, cols};
  for (const std::size_t r : rows) {
    for (const std::size_t c : cols) {
      const double value = ValueAt(path, r, c);
      if (f8) *to = ToF8(value);
      if (!f8) Store(dtype, value * 0.3, to);
      to += element;
    }
  }
  if (!f8) return;
  const Shape scales = options_.scale == TinyScale::kTensor ? Shape{1}
                       : options_.scale == TinyScale::kRow  ? Shape{shape[0], 1}
                                                            : Shape{1, 1};
  const bool blocks = options_.scale == TinyScale::kBlock;
  std::byte* scale = AddBuffer(path + (blocks ? ".weight_scale_inv" : ".weight_scale"), DType::kF32, scales);
  for (std::int64_t i = 0; i < NumElements(scales); ++i) {
    Store(DType::kF32, 0.2 + 0.01 * static_cast<double>(i % 7), scale + 4 * i);
  }
}

std::byte* TinyModel::AddBuffer(const std::string& name, DType dtype, Shape shape) {
  memory_.emplace_back(static_cast<std::size_t>(NumBytes(dtype, shape)));
  buffers_.push_back({name, memory_.back().data(), dtype, std::move(shape), {}, {}});
  return memory_.back().data();
}

}  // namespace layercast
