// Module trees of small models, as their config.json says, for the tests of adapters.
#pragma once

#include <memory>
#include <string>

#include "layercast/model/config.h"
#include "layercast/model/module.h"
#include "layercast/model/registry.h"

namespace layercast::testing {

inline std::unique_ptr<Module> TreeOfConfig(const std::string& fields, const ParallelConfig& parallel = {}) {
  const std::string common = R"("num_hidden_layers": 1, "vocab_size": 100, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "dtype": "bfloat16", "hidden_act": "silu")";
  return ModelRegistry::Builtin().Build(ModelConfig::Parse("{" + common + ", " + fields + "}"), parallel);
}

inline const std::string kLlama = R"("architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
  "intermediate_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16)";
inline const std::string kPhi3 = R"("architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 64,
  "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2)";
inline const std::string kQwen3Moe = R"("architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 32, "intermediate_size": 24, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "mlp_only_layers": [])";
inline const std::string kGptOss =
    R"("architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 32,
  "intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2, "num_attention_heads": 4,
  "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 16, "layer_types": ["full_attention"],
  "swiglu_limit": 7.0, "attention_bias": true)";

}  // namespace layercast::testing
