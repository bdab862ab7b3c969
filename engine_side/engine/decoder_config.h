// What the decoder computes with: sizes and constants of a Llama-like model, all checked. Made from the model's
// configuration by the engine. Value.
#pragma once

#include <cstddef>
#include <vector>

#include "layercast/dtype.h"
#include "layercast/model/config.h"

namespace layercast {

struct DecoderConfig {
  DType dtype = DType::kBF16;  // activations are rounded to it after every operation, as torch does
  std::size_t num_layers = 0;
  std::size_t hidden_size = 0;
  std::size_t intermediate_size = 0;
  std::size_t num_heads = 0;
  std::size_t num_kv_heads = 0;
  std::size_t head_dim = 0;
  std::size_t vocab_size = 0;  // without padding
  float rms_norm_epsilon = 1e-6F;

  std::vector<float> inverse_frequencies;  // of the rotary embedding: head_dim / 2
  float rope_attention_factor = 1.0F;      // multiplies its cosines and sines

  std::size_t max_tokens = 0;        // a sequence's greatest length
  std::vector<std::size_t> windows;  // per layer: how many last positions a token sees, itself included; 0: all

  // `max_tokens` may be less than max_position_embeddings, which 0 stands for. Throws kUnsupported, naming the field,
  // for what the decoder cannot compute. (Part of the engine's library: the rotary embedding needs torch.)
  static DecoderConfig From(const ModelConfig& config, std::size_t max_tokens = 0);
};

}  // namespace layercast
