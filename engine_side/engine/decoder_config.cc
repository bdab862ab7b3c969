#include "engine_side/engine/decoder_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "engine_side/engine/rope.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::array<std::string_view, 3> kArchitectures = {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"};

void CheckSupported(const ModelConfig& config) {
  const auto is_known = [](const std::string& name) { return std::ranges::count(kArchitectures, name) > 0; };
  if (std::ranges::none_of(config.architectures, is_known)) {
    std::string names;
    for (const std::string& name : config.architectures) names += (names.empty() ? "" : ", ") + name;
    throw Error(
        ErrorCode::kUnsupported,
        "the built-in engine computes LlamaForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM; config.json names " +
            (names.empty() ? "no architecture" : names));
  }
  if (config.hidden_act != "silu") {
    throw Error(ErrorCode::kUnsupported,
                "config.json: hidden_act '" + config.hidden_act + "': the built-in engine computes silu alone");
  }
}

}  // namespace

DecoderConfig DecoderConfig::From(const ModelConfig& config, std::size_t max_tokens) {
  CheckSupported(config);
  DecoderConfig result;
  result.dtype = config.dtype;
  result.num_layers = static_cast<std::size_t>(config.num_hidden_layers);
  result.hidden_size = static_cast<std::size_t>(config.hidden_size);
  result.intermediate_size = static_cast<std::size_t>(config.intermediate_size);
  result.num_heads = static_cast<std::size_t>(config.num_attention_heads);
  result.num_kv_heads = static_cast<std::size_t>(config.num_key_value_heads);
  result.head_dim = static_cast<std::size_t>(config.head_dim);
  result.vocab_size = static_cast<std::size_t>(config.vocab_size);
  result.rms_norm_epsilon = static_cast<float>(config.rms_norm_eps);
  Rope rope = MakeRope(config);
  result.inverse_frequencies = std::move(rope.inverse_frequencies);
  result.rope_attention_factor = rope.attention_factor;
  const auto limit = static_cast<std::size_t>(config.max_position_embeddings);
  result.max_tokens = max_tokens == 0 ? limit : std::min(max_tokens, limit);
  for (const std::string& type : config.layer_types) {
    const bool slides = type == "sliding_attention" && config.sliding_window.has_value();
    result.windows.push_back(slides ? static_cast<std::size_t>(*config.sliding_window) : 0);
  }
  return result;
}

}  // namespace layercast
