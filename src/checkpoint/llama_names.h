// Decoders of the Llama kind under other names, and with other rows: what `mistral` and `gguf` files have in common.
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

// A '*' on both sides is a number, an expert's. One on Hugging Face's side alone stands for every expert: these files
// keep all of them in one tensor.
struct NameTable {
  std::string_view layers;  // "blk.": what stands before a layer's number
  NamePairs in_layer;       // "attn_q" -> "self_attn.q_proj"
  NamePairs mixture;        // the same in layers that are mixtures of experts
  NamePairs outside;        // "output" -> "lm_head"
};

// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; nothing for a name that the table does not have.
// With a '*' left in it: of every expert.
std::optional<std::string> ToHuggingFace(std::string_view name, const NameTable& table);

// True of the projections whose rows are rotated: q_proj and k_proj, weight and bias.
bool IsQueryOrKey(std::string_view hugging_face_name, std::string_view projection);

// Rotary embeddings turn pairs of a head's rows. These files keep a pair's rows beside each other, Hugging Face half a
// head apart: row 2i + j of a head becomes row j * (head's rows / 2) + i. Throws kCorrupt, its message opening with
// `subject`, unless the rows are `heads` times an even number.
NamedTensor RowsInHalves(const NamedTensor& tensor, std::int64_t heads, const std::string& subject);

}  // namespace layercast
