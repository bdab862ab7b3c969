// The addresses that a forward pass reads, found once by name among the captured buffers: from then on they are what
// they are, as in a CUDA graph. Used by the decoder.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine_side/engine/decoder_config.h"
#include "engine_side/engine/kernels.h"
#include "layercast/captured_buffers.h"
#include "layercast/parallel.h"

namespace layercast {

// A linear layer of this rank. A vector (bias, norm) is a weight of one row.
struct LinearWeights {
  WeightView weight;
  std::optional<WeightView> bias;
};

struct DecoderLayerWeights {
  WeightView input_norm;
  LinearWeights qkv;  // rows: query heads, key heads, value heads
  std::optional<WeightView> q_norm;
  std::optional<WeightView> k_norm;
  LinearWeights o;
  WeightView post_attention_norm;
  LinearWeights gate_up;
  LinearWeights down;
};

// Value; the memory is the engine's.
struct DecoderWeights {
  WeightView embedding;
  std::vector<DecoderLayerWeights> layers;
  WeightView final_norm;
  WeightView lm_head;  // the embedding again when they are tied

  // Heads that one rank computes. A key/value head is held by several ranks where there are more ranks than heads.
  static std::size_t LocalHeads(const DecoderConfig& config, const ParallelConfig& parallel);
  static std::size_t LocalKvHeads(const DecoderConfig& config, const ParallelConfig& parallel);

  // Throws kInvalidArgument or kUnsupported, naming the buffer: one that is missing, of another shape, strided or not
  // in host memory, or that this forward pass would not read.
  static DecoderWeights Find(const DecoderConfig& config, const ParallelConfig& parallel,
                             std::span<const CapturedBuffer> buffers);
};

}  // namespace layercast
