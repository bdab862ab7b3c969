#include "examples/rl_loop/policy.h"

#include <ATen/ATen.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/safetensors/safetensors_writer.h"

namespace rl_loop {
namespace {

using torch::nn::Module;

// Adds a submodule `name` that holds nothing but a weight. Copies of a tensor share its storage.
at::Tensor AddWeight(Module& parent, const std::string& name, at::Tensor initial) {
  auto holder = parent.register_module(name, std::make_shared<Module>());
  return holder->register_parameter("weight", std::move(initial));
}

}  // namespace

// A linear layer, and the adapter beside it: W x + alpha / rank * B (A x).
struct Linear : Module {
  explicit Linear(at::Tensor initial) : weight(register_parameter("weight", std::move(initial))) {}

  at::Tensor operator()(const at::Tensor& x) const {
    const at::Tensor y = at::linear(x, weight);
    return a.defined() ? y + scale * at::linear(at::linear(x, a), b) : y;
  }

  void AddAdapter(const LoraConfig& lora) {
    const double bound = 1 / std::sqrt(static_cast<double>(weight.size(1)));  // as PEFT begins: A random, B zero
    a = AddWeight(*this, "lora_A", at::empty({lora.rank, weight.size(1)}).uniform_(-bound, bound));
    b = AddWeight(*this, "lora_B", at::zeros({weight.size(0), lora.rank}));
    scale = lora.alpha / static_cast<double>(lora.rank);
  }

  at::Tensor weight, a, b;
  double scale = 0;
};

namespace {

std::shared_ptr<Linear> AddLinear(Module& parent, const std::string& name, std::int64_t out, std::int64_t in,
                                  double deviation) {
  return parent.register_module(name, std::make_shared<Linear>(at::randn({out, in}) * deviation));
}

at::Tensor AddNorm(Module& parent, const std::string& name, std::int64_t size) {
  return AddWeight(parent, name, at::ones({size}));
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return weight * (x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps));
}

// Cosines and sines [length, head_dim] of every position. Both halves of a head are rotated by the same angles.
std::pair<at::Tensor, at::Tensor> RotaryTables(std::int64_t length, const PolicyConfig& config) {
  const at::Tensor exponents = at::arange(0, config.head_dim, 2, at::kFloat) / static_cast<double>(config.head_dim);
  const at::Tensor frequencies = at::reciprocal(at::pow(config.rope_theta, exponents));
  const at::Tensor half = at::outer(at::arange(length, at::kFloat), frequencies);
  const at::Tensor angles = at::cat({half, half}, -1);
  return {angles.cos(), angles.sin()};
}

at::Tensor Rotate(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  const auto halves = x.chunk(2, -1);
  return x * cosines + at::cat({-halves[1], halves[0]}, -1) * sines;
}

}  // namespace

// One decoder block: attention and a gated feed-forward, each behind a norm and added to the residual.
struct DecoderLayer : Module {
  explicit DecoderLayer(const PolicyConfig& c) : config(c) {
    auto attention = register_module("self_attn", std::make_shared<Module>());
    const double deviation = c.initializer_range;
    q_proj = AddLinear(*attention, "q_proj", c.num_attention_heads * c.head_dim, c.hidden_size, deviation);
    k_proj = AddLinear(*attention, "k_proj", c.num_key_value_heads * c.head_dim, c.hidden_size, deviation);
    v_proj = AddLinear(*attention, "v_proj", c.num_key_value_heads * c.head_dim, c.hidden_size, deviation);
    o_proj = AddLinear(*attention, "o_proj", c.hidden_size, c.num_attention_heads * c.head_dim, deviation);
    q_norm = AddNorm(*attention, "q_norm", c.head_dim);
    k_norm = AddNorm(*attention, "k_norm", c.head_dim);
    auto mlp = register_module("mlp", std::make_shared<Module>());
    gate_proj = AddLinear(*mlp, "gate_proj", c.intermediate_size, c.hidden_size, deviation);
    up_proj = AddLinear(*mlp, "up_proj", c.intermediate_size, c.hidden_size, deviation);
    down_proj = AddLinear(*mlp, "down_proj", c.hidden_size, c.intermediate_size, deviation);
    input_layernorm = AddNorm(*this, "input_layernorm", c.hidden_size);
    post_attention_layernorm = AddNorm(*this, "post_attention_layernorm", c.hidden_size);
  }

  at::Tensor Forward(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
    const at::Tensor attended = x + Attention(RmsNorm(x, input_layernorm, config.rms_norm_eps), cosines, sines);
    const at::Tensor h = RmsNorm(attended, post_attention_layernorm, config.rms_norm_eps);
    return attended + (*down_proj)(at::silu((*gate_proj)(h)) * (*up_proj)(h));
  }

  at::Tensor Attention(const at::Tensor& h, const at::Tensor& cosines, const at::Tensor& sines) {
    const double eps = config.rms_norm_eps;
    const at::Tensor q = Rotate(RmsNorm(Heads((*q_proj)(h)), q_norm, eps).transpose(1, 2), cosines, sines);
    const at::Tensor k = Rotate(RmsNorm(Heads((*k_proj)(h)), k_norm, eps).transpose(1, 2), cosines, sines);
    const at::Tensor v = Heads((*v_proj)(h)).transpose(1, 2);
    const std::int64_t queries_per_key = config.num_attention_heads / config.num_key_value_heads;
    const at::Tensor attended = at::scaled_dot_product_attention(q, k.repeat_interleave(queries_per_key, 1),
                                                                 v.repeat_interleave(queries_per_key, 1), {}, 0.0,
                                                                 /*is_causal=*/true);
    return (*o_proj)(attended.transpose(1, 2).flatten(2));
  }

  // [batch, length, heads * head_dim] -> [batch, length, heads, head_dim]
  at::Tensor Heads(const at::Tensor& x) const { return x.view({x.size(0), x.size(1), -1, config.head_dim}); }

  PolicyConfig config;
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj;
  at::Tensor q_norm, k_norm, input_layernorm, post_attention_layernorm;
};

Policy::Policy(const PolicyConfig& config) : config_(config) {
  model_ = register_module("model", std::make_shared<Module>());
  embed_tokens_ =
      AddWeight(*model_, "embed_tokens", at::randn({config.vocab_size, config.hidden_size}) * config.initializer_range);
  auto list = model_->register_module("layers", std::make_shared<Module>());
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(list->register_module(std::to_string(i), std::make_shared<DecoderLayer>(config)));
  }
  norm_ = AddNorm(*model_, "norm", config.hidden_size);
  lm_head_ = AddLinear(*this, "lm_head", config.vocab_size, config.hidden_size, config.initializer_range);
}

void Policy::LearnAdapter(const LoraConfig& lora) {
  for (at::Tensor& weight : parameters()) weight.requires_grad_(false);
  for (const auto& module : modules()) {
    if (const auto linear = std::dynamic_pointer_cast<Linear>(module)) linear->AddAdapter(lora);
  }
}

std::vector<std::pair<std::string, at::Tensor>> Policy::Learned() const {
  std::vector<std::pair<std::string, at::Tensor>> learned;
  for (const auto& parameter : named_parameters()) {
    if (parameter.value().requires_grad()) learned.emplace_back(parameter.key(), parameter.value());
  }
  return learned;
}

at::Tensor Policy::Forward(const at::Tensor& tokens) {
  const auto [cosines, sines] = RotaryTables(tokens.size(1), config_);
  at::Tensor x = at::embedding(embed_tokens_, tokens);
  for (const auto& layer : layers_) x = layer->Forward(x, cosines, sines);
  return (*lm_head_)(RmsNorm(x, norm_, config_.rms_norm_eps));
}

std::string PolicyConfig::ToJson() const {
  const nlohmann::ordered_json json = {
      {"architectures", {"Qwen3ForCausalLM"}},
      {"model_type", "qwen3"},
      {"dtype", served_dtype},
      {"vocab_size", vocab_size},
      {"hidden_size", hidden_size},
      {"intermediate_size", intermediate_size},
      {"num_hidden_layers", num_hidden_layers},
      {"num_attention_heads", num_attention_heads},
      {"num_key_value_heads", num_key_value_heads},
      {"head_dim", head_dim},
      {"hidden_act", "silu"},
      {"attention_bias", false},
      {"tie_word_embeddings", false},
      {"max_position_embeddings", 64},
      {"rms_norm_eps", rms_norm_eps},
      {"initializer_range", initializer_range},
      {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", rope_theta}}},
  };
  return json.dump(2);
}

std::string LoraConfig::ToJson() const {
  const nlohmann::ordered_json json = {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}};
  return json.dump();
}

void SaveCheckpoint(const Policy& policy, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::vector<layercast::NamedTensor> tensors;
  for (const auto& parameter : policy.named_parameters()) {
    const at::Tensor& value = parameter.value();  // fp32 and contiguous, as the constructor made it
    tensors.push_back({.name = parameter.key(),
                       .tensor = {.dtype = layercast::DType::kF32,
                                  .shape = value.sizes().vec(),
                                  .data = static_cast<const std::byte*>(value.const_data_ptr()),
                                  .device = {}},
                       .owner = nullptr});
  }
  layercast::WriteSafetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  std::ofstream config(folder / "config.json");
  config << policy.config().ToJson() << '\n';
  config.close();
  if (!config) throw std::runtime_error("cannot write " + (folder / "config.json").string());
}

}  // namespace rl_loop
