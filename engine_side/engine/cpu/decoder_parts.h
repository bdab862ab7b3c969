// Finds what surrounds the layers in a decoder's module tree. Used by the decoder on the CPU and by the decode step in
// tensors. Torch-free.
#pragma once

#include <optional>
#include <string>

#include "engine_side/engine/captured_weights.h"
#include "engine_side/engine/cpu/kernels/weight_view.h"
#include "layercast/dtype.h"
#include "layercast/error.h"
#include "layercast/model/decoder.h"
#include "layercast/model/embedding.h"
#include "layercast/model/module.h"

namespace layercast {

// Casts `module` to Kind. Throws kUnsupported, naming path and class, if it is of another class or null.
template <class Kind>
const Kind& AsKind(const Module* module, const std::string& path) {
  if (const auto* as_kind = dynamic_cast<const Kind*>(module)) return *as_kind;
  throw Error(ErrorCode::kUnsupported, "the built-in engine cannot compute " + path + " (" +
                                           (module == nullptr ? "not there" : module->class_name()) + ")");
}

const VocabParallelEmbedding& EmbeddingOf(const DecoderForCausalLM& model);
// The weight of the head; nullopt if it is tied to the embedding.
std::optional<WeightView> FindHead(const DecoderForCausalLM& model, CapturedWeights& weights);
// The factor by which embeddings are multiplied, rounded to the model's dtype.
float EmbeddingScaleOf(const DecoderForCausalLM& model);

}  // namespace layercast
