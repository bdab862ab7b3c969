// What `mistral` and `gguf` files have in common: decoders of the Llama kind, with other names than Hugging Face's and
// with other orders of rows. Used by the two loaders.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "layercast/tensor.h"

namespace layercast {

using NamePairs = std::span<const std::pair<std::string_view, std::string_view>>;  // theirs, Hugging Face's

// How names translate. A '*' on both sides is the number of an expert. A '*' on Hugging Face's side alone stands for
// every expert, because the file keeps all of them in one tensor. Value; borrows the texts.
struct NameTable {
  std::string_view layers;  // "blk.": what precedes a layer's number
  NamePairs in_layer;       // "attn_q" -> "self_attn.q_proj"
  NamePairs mixture;        // as in_layer, for layers that are mixtures of experts
  NamePairs outside;        // "output" -> "lm_head"
};

// Translates "blk.3.attn_q.weight" to "model.layers.3.self_attn.q_proj.weight". nullopt for a name that the table does
// not have. A '*' in the result stands for every expert.
std::optional<std::string> ToHuggingFace(std::string_view name, const NameTable& table);

// Whether it is a weight or bias of a projection whose rows are rotated: q_proj or k_proj.
bool IsQueryOrKey(std::string_view hugging_face_name, std::string_view projection);

// Puts rows into Hugging Face's order. Rotary embeddings rotate pairs of a head's rows. These files keep a pair's rows
// beside each other, Hugging Face half a head apart: row 2i + j of a head becomes row j * (head's rows / 2) + i. Throws
// kCorrupt, with a message that begins with `subject`, unless the rows are `heads` times an even number.
NamedTensor RowsInHalves(const NamedTensor& tensor, std::int64_t heads, const std::string& subject);

}  // namespace layercast
