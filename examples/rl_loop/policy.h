// The policy that is trained: a small Qwen3 in full precision on libtorch. Its parameters have the names that Hugging
// Face gives them ("model.layers.0.self_attn.q_proj.weight"), so named_parameters() can be published as it is.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rl_loop {

// Value. Sizes divide by two ranks.
struct PolicyConfig {
  std::int64_t vocab_size = 16;
  std::int64_t hidden_size = 64;
  std::int64_t intermediate_size = 128;
  std::int64_t num_hidden_layers = 2;
  std::int64_t num_attention_heads = 4;
  std::int64_t num_key_value_heads = 2;
  std::int64_t head_dim = 16;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  std::string served_dtype = "bfloat16";  // config.json's dtype, to which an engine casts before it quantizes

  std::string ToJson() const;  // config.json, as transformers reads it
};

// A LoRA adapter of every linear layer. Value.
struct LoraConfig {
  std::int64_t rank = 8;
  double alpha = 16;

  std::string ToJson() const;  // adapter_config.json, as PEFT writes it
};

struct Linear;
struct DecoderLayer;

// Resource; one thread at a time. Weights are fp32, drawn from torch's global generator.
class Policy : public torch::nn::Module {
 public:
  explicit Policy(const PolicyConfig& config);

  // From now on an adapter alone learns, which begins by adding nothing: all weights are frozen, and beside those of
  // the linear layers are factors with PEFT's names ("model.layers.0.self_attn.q_proj.lora_A.weight").
  void LearnAdapter(const LoraConfig& lora);
  // tokens [batch, length] int64 -> logits [batch, length, vocabulary] fp32.
  at::Tensor Forward(const at::Tensor& tokens);
  // The parameters that learn, by name.
  std::vector<std::pair<std::string, at::Tensor>> Learned() const;
  const PolicyConfig& config() const { return config_; }

 private:
  PolicyConfig config_;
  // The second owner is the module tree.
  std::shared_ptr<torch::nn::Module> model_;
  std::vector<std::shared_ptr<DecoderLayer>> layers_;
  std::shared_ptr<Linear> lm_head_;
  at::Tensor embed_tokens_, norm_;
};

// Writes config.json and model.safetensors (fp32), from which an engine starts. The policy has no adapter yet.
void SaveCheckpoint(const Policy& policy, const std::filesystem::path& folder);

}  // namespace rl_loop
