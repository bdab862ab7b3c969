#include "tests/engine/tiny_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "engine_side/engine/kernels.h"

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

}  // namespace

DecoderConfig TinyConfig(const TinyOptions& options) {
  DecoderConfig config;
  config.dtype = options.dtype;
  config.num_layers = 2;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 10;
  config.vocab_size = 101;
  for (std::size_t i = 0; i < 5; ++i) {
    config.inverse_frequencies.push_back(std::pow(10000.0F, -0.2F * static_cast<float>(i)));
  }
  config.max_tokens = 3000;
  config.windows = {0, options.window};
  return config;
}

TinyModel::TinyModel(const TinyOptions& options, const ParallelConfig& parallel)
    : options_(options), config_(TinyConfig(options)), parallel_(parallel) {
  const auto rank = static_cast<std::size_t>(parallel.tp_rank);
  const std::size_t vocab_rows = 128 / static_cast<std::size_t>(parallel.tp_size);
  const auto hidden = Range(0, config_.hidden_size);
  AddMatrix("model.embed_tokens", Range(rank * vocab_rows, vocab_rows), hidden, false);
  for (std::size_t i = 0; i < config_.num_layers; ++i) AddLayer(i);
  AddVector("model.norm.weight", config_.hidden_size, 1.0);
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
  const std::size_t dim = config_.head_dim;
  const std::size_t queries = config_.num_heads / tp * dim;
  const std::size_t kv_heads = std::max<std::size_t>(1, config_.num_kv_heads / tp);
  const std::size_t kv_rank = tp > config_.num_kv_heads ? rank / (tp / config_.num_kv_heads) : rank;
  const std::size_t all_queries = config_.num_heads * dim;
  const std::size_t all_keys = config_.num_kv_heads * dim;
  std::vector<std::size_t> qkv = Range(rank * queries, queries);
  Append(qkv, all_queries + kv_rank * kv_heads * dim, kv_heads * dim);
  Append(qkv, all_queries + all_keys + kv_rank * kv_heads * dim, kv_heads * dim);
  const std::size_t width = config_.intermediate_size / tp;
  std::vector<std::size_t> gate_up = Range(rank * width, width);
  Append(gate_up, config_.intermediate_size + rank * width, width);

  const auto hidden = Range(0, config_.hidden_size);
  AddVector(path + "input_layernorm.weight", config_.hidden_size, 1.0);
  AddMatrix(path + "self_attn.qkv_proj", qkv, hidden, true);
  if (options_.bias) {
    std::byte* to =
        AddBuffer(path + "self_attn.qkv_proj.bias", options_.dtype, {static_cast<std::int64_t>(qkv.size())});
    const auto element = static_cast<std::size_t>(BitsPerElement(options_.dtype)) / 8;
    for (std::size_t i = 0; i < qkv.size(); ++i)
      Store(options_.dtype, ValueAt(path + "b", qkv[i], 0), to + i * element);
    AddVector(path + "self_attn.o_proj.bias", config_.hidden_size, 0.0);
    AddVector(path + "mlp.down_proj.bias", config_.hidden_size, 0.0);
  }
  if (options_.qk_norm) {
    AddVector(path + "self_attn.q_norm.weight", dim, 1.0);
    AddVector(path + "self_attn.k_norm.weight", dim, 1.0);
  }
  AddMatrix(path + "self_attn.o_proj", hidden, Range(rank * queries, queries), true);
  AddVector(path + "post_attention_layernorm.weight", config_.hidden_size, 1.0);
  AddMatrix(path + "mlp.gate_up_proj", gate_up, hidden, true);
  AddMatrix(path + "mlp.down_proj", hidden, Range(rank * width, width), true);
}

void TinyModel::AddVector(const std::string& name, std::size_t size, double center, std::size_t first) {
  std::byte* to = AddBuffer(name, options_.dtype, {static_cast<std::int64_t>(size)});
  const auto element = static_cast<std::size_t>(BitsPerElement(options_.dtype)) / 8;
  for (std::size_t i = 0; i < size; ++i) {
    Store(options_.dtype, center + 0.2 * ValueAt(name, first + i, 0), to + i * element);
  }
}

void TinyModel::AddMatrix(const std::string& path, const std::vector<std::size_t>& rows,
                          const std::vector<std::size_t>& cols, bool quantized) {
  const Shape shape = {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(cols.size())};
  const bool f8 = quantized && options_.scale != TinyScale::kNone;
  const DType dtype = f8 ? DType::kF8E4M3 : options_.dtype;
  const auto element = static_cast<std::size_t>(BitsPerElement(dtype)) / 8;
  std::byte* to = AddBuffer(path + ".weight", dtype, shape);
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
