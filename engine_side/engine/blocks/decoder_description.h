// What a decoder computes, said once for both forward passes: what comes before the layers and after them, and the
// layers' steps in order. Made by DescribeDecoder from the module tree. Torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/blocks/block_description.h"
#include "engine_side/engine/blocks/operands.h"
#include "engine_side/engine/rotary_table.h"
#include "layercast/captured_buffers.h"
#include "layercast/dtype.h"
#include "layercast/model/decoder.h"
#include "layercast/model/embedding.h"
#include "layercast/tensor.h"

namespace layercast {

// hidden += post_norm(block(norm(hidden))). Value.
struct StepDescription {
  NormOperand norm;
  BlockDescription block;
  std::optional<NormOperand> post_norm;
};

// What this rank computes. Resource, which may be moved.
struct DecoderDescription {
  struct Embedding {
    WeightView rows;
    VocabRange range;          // the rows of the vocabulary that this rank has
    float scale = 1.0F;        // multiplies what is read of them, which is rounded to the model's dtype then
    AdapterOperand adapter{};  // what it adds is multiplied too
  };
  struct Head {
    NormOperand norm;  // its output is rounded to the model's dtype as well
    WeightView rows;   // the embedding's rows if the two are tied
    double logit_softcap = 0.0;
    AdapterOperand adapter{};  // the head's own, also if the two are tied
  };

  RotaryTables rotary;  // blocks refer to them
  DType dtype = DType::kBF16;
  DType residual_dtype = DType::kBF16;  // of the sums between blocks
  std::int64_t hidden_size = 0, vocab_size = 0;
  std::optional<Embedding> embedding;  // if this rank holds it; in a pipeline the last stage may hold it too
  std::vector<StepDescription> steps;
  std::optional<Head> head;  // on the last stage only
};

// Casts `model` to what the forward passes compute. Throws kUnsupported, naming its class, if it is something else.
const DecoderForCausalLM& AsDecoder(const Module& model);

// Describes what the rank of `model` computes with the buffers and adapters (null: none), which are on `device`. `pass`
// names the pass in errors. Throws kUnsupported, naming what cannot be computed, and as CapturedWeights does: also for
// a buffer that nothing reads, or an adapters' term that nothing adds.
DecoderDescription DescribeDecoder(const DecoderForCausalLM& model, std::span<const CapturedBuffer> buffers,
                                   const Device& device, RopeFunction make_rope, const char* pass,
                                   const AdapterSlots* adapters = nullptr);

}  // namespace layercast
