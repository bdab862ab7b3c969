// A Qwen2 of a given size, and weights for it. Benchmarks of reloads load it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layercast/model/registry.h"
#include "layercast/tensor.h"

namespace layercast::bench {

struct Size {
  std::int64_t layers, hidden, intermediate, heads, kv_heads, head_dim;
  std::int64_t vocab = 64;
  bool tied = false;
};
inline constexpr Size kLarge{2, 2048, 8192, 16, 4, 128};                        // layers of 122 MB
inline constexpr Size kQwen3Shapes{28, 1024, 3072, 16, 8, 128, 151'936, true};  // Qwen3-0.6B's matrices: 1.19 GB

inline std::unique_ptr<Module> ModelOf(const Size& size, const ParallelConfig& parallel = {}) {
  const std::string config = R"({"architectures": ["Qwen2ForCausalLM"], "torch_dtype": "bfloat16",
      "vocab_size": )" + std::to_string(size.vocab) +
                             ", \"tie_word_embeddings\": " + (size.tied ? "true" : "false") +
                             ", \"hidden_size\": " + std::to_string(size.hidden) +
                             ", \"intermediate_size\": " + std::to_string(size.intermediate) +
                             ", \"num_attention_heads\": " + std::to_string(size.heads) +
                             ", \"num_key_value_heads\": " + std::to_string(size.kv_heads) +
                             ", \"head_dim\": " + std::to_string(size.head_dim) +
                             ", \"num_hidden_layers\": " + std::to_string(size.layers) + "}";
  return ModelRegistry::Builtin().Build(ModelDescription::FromJson(config), parallel);
}

inline std::vector<TensorSpec> SpecsOf(const Size& size) {
  std::vector<TensorSpec> specs;
  const auto add = [&](std::string name, Shape shape) {
    specs.push_back({std::move(name), DType::kBF16, std::move(shape)});
  };
  add("model.embed_tokens.weight", {size.vocab, size.hidden});
  for (std::int64_t i = 0; i < size.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    add(layer + "input_layernorm.weight", {size.hidden});
    for (const auto& [name, heads] : {std::pair("q", size.heads), {"k", size.kv_heads}, {"v", size.kv_heads}}) {
      add(layer + "self_attn." + name + "_proj.weight", {heads * size.head_dim, size.hidden});
      add(layer + "self_attn." + name + "_proj.bias", {heads * size.head_dim});
    }
    add(layer + "self_attn.o_proj.weight", {size.hidden, size.heads * size.head_dim});
    add(layer + "post_attention_layernorm.weight", {size.hidden});
    add(layer + "mlp.gate_proj.weight", {size.intermediate, size.hidden});
    add(layer + "mlp.up_proj.weight", {size.intermediate, size.hidden});
    add(layer + "mlp.down_proj.weight", {size.hidden, size.intermediate});
  }
  add("model.norm.weight", {size.hidden});
  if (!size.tied) add("lm_head.weight", {size.vocab, size.hidden});
  return specs;
}

// Fills with bf16: normal numbers (not subnormal) below 4, of either sign.
inline void FillWithWeights(std::span<std::byte> bytes) {
  auto* values = reinterpret_cast<std::uint16_t*>(bytes.data());
  for (std::size_t i = 0; i < bytes.size() / 2; ++i) {
    const std::size_t mixed = i * 2654435761U >> 7;
    values[i] = static_cast<std::uint16_t>((mixed & 0x8000U) | 0x3B00U | (mixed & 0x7FU));
  }
}

}  // namespace layercast::bench
