#include "examples/rl_loop/policy.h"

#include <ATen/ATen.h>

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

at::Tensor AddLinear(Module& parent, const std::string& name, std::int64_t out, std::int64_t in, double deviation) {
  return AddWeight(parent, name, at::randn({out, in}) * deviation);
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
    return attended + at::linear(at::silu(at::linear(h, gate_proj)) * at::linear(h, up_proj), down_proj);
  }

  at::Tensor Attention(const at::Tensor& h, const at::Tensor& cosines, const at::Tensor& sines) {
    const double eps = config.rms_norm_eps;
    const at::Tensor q = Rotate(RmsNorm(Heads(h, q_proj), q_norm, eps).transpose(1, 2), cosines, sines);
    const at::Tensor k = Rotate(RmsNorm(Heads(h, k_proj), k_norm, eps).transpose(1, 2), cosines, sines);
    const at::Tensor v = Heads(h, v_proj).transpose(1, 2);
    const std::int64_t queries_per_key = config.num_attention_heads / config.num_key_value_heads;
    const at::Tensor attended = at::scaled_dot_product_attention(q, k.repeat_interleave(queries_per_key, 1),
                                                                 v.repeat_interleave(queries_per_key, 1), {}, 0.0,
                                                                 /*is_causal=*/true);
    return at::linear(attended.transpose(1, 2).flatten(2), o_proj);
  }

  // [batch, length, hidden] -> [batch, length, heads, head_dim]
  at::Tensor Heads(const at::Tensor& h, const at::Tensor& weight) const {
    return at::linear(h, weight).view({h.size(0), h.size(1), -1, config.head_dim});
  }

  PolicyConfig config;
  at::Tensor q_proj, k_proj, v_proj, o_proj, q_norm, k_norm;
  at::Tensor gate_proj, up_proj, down_proj;
  at::Tensor input_layernorm, post_attention_layernorm;
};

Policy::Policy(const PolicyConfig& config) : config_(config) {
  model_ = register_module("model", std::make_shared<Module>());
  embed_tokens_ = AddLinear(*model_, "embed_tokens", config.vocab_size, config.hidden_size, config.initializer_range);
  auto list = model_->register_module("layers", std::make_shared<Module>());
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(list->register_module(std::to_string(i), std::make_shared<DecoderLayer>(config)));
  }
  norm_ = AddNorm(*model_, "norm", config.hidden_size);
  lm_head_ = AddLinear(*this, "lm_head", config.vocab_size, config.hidden_size, config.initializer_range);
}

at::Tensor Policy::Forward(const at::Tensor& tokens) {
  const auto [cosines, sines] = RotaryTables(tokens.size(1), config_);
  at::Tensor x = at::embedding(embed_tokens_, tokens);
  for (const auto& layer : layers_) x = layer->Forward(x, cosines, sines);
  return at::linear(RmsNorm(x, norm_, config_.rms_norm_eps), lm_head_);
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
