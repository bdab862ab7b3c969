// Names of tensors as PEFT writes them: which module they are of, and which factor. Used by whoever takes an adapter's
// tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace layercast {

enum class Factor : std::uint8_t {
  kA,           // ".lora_A.weight": [r, in]
  kB,           // ".lora_B.weight": [out, r]
  kEmbeddingA,  // ".lora_embedding_A": [r, vocabulary]
  kEmbeddingB,  // ".lora_embedding_B": [hidden, r]
  kBaseCopy,    // ".base_layer.weight": a copy of the base's, which PEFT adds for embeddings and heads
};

// "lora_A", "lora_embedding_B", "base_layer": the segment of names that says it.
std::string_view Name(Factor factor);

// Value.
struct AdapterName {
  std::string module;  // its path in the Hugging Face model: "model.layers.0.self_attn.q_proj"
  Factor factor = Factor::kA;
  int wrapper = 0;  // how many segments "base_layer" are before the factor's: 1 is the inner one of two wrappers

  bool operator==(const AdapterName&) const = default;
};

// Reads a name. "base_model.model." before it may be missing, and "default" behind the factor may be there. Throws
// kUnsupported, naming the tensor, for what PEFT writes beside factors: magnitudes, biases, token adapters and whole
// modules; kInvalidArgument for any other name.
AdapterName ParseAdapterName(std::string_view name);

// Whether it is the name of a module that was saved whole (modules_to_save): "base_model.model.lm_head.weight".
bool IsWholeModuleName(std::string_view name);

}  // namespace layercast
