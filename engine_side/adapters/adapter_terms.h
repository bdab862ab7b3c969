// What of a model LoRA adapters can change, said once for loading adapters and for computing with them: a list of
// terms, made of the module tree. A slot has two factors for each term, in this order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/tensor.h"

namespace layercast {

class Module;

// A low-rank term of a layer's output on this rank. With x the layer's input and rank r:
//   y[first_row + i] += scale * sum over j of B[i][j] * (sum over c of A[j][c] * x[c])     0 <= i < rows, 0 <= j < r
// A fused layer has a term for each of its shards, and a stack of experts has the terms of an expert once for each.
// Where the base's columns are split over ranks (`sums`), the inner sum, over c, goes over all ranks.
// An embedding's term is looked up instead: A holds a row for each of this rank's tokens, [columns, r], and the inner
// sum is the token's row. Value.
struct AdapterTerm {
  std::string layer;           // path of the module: "model.layers.0.self_attn.qkv_proj", "model.layers.0.mlp.experts"
  std::string parameter;       // the base weight that it adds to: "weight", "w13_weight"
  std::string shard;           // what checkpoints call this part: "q_proj"; empty: it is the only one
  std::int64_t experts = 0;    // of this rank, if it is a stack; 0: it is none
  std::int64_t first_row = 0;  // in this rank's output of the layer
  std::int64_t rows = 0;       // of B
  std::int64_t columns = 0;    // of A: this rank's part of the input
  bool lookup = false;         // it is an embedding's
  bool sums = false;           // the base's columns are split over ranks

  // Of one slot's factors, as they lie in memory, for adapters of up to `max_rank`. Stacks have one more dimension, the
  // experts, before these: A [max_rank, columns], or, if looked up, [columns, max_rank]; B [rows, max_rank].
  Shape AShape(std::int64_t max_rank) const;
  Shape BShape(std::int64_t max_rank) const;
  std::size_t num_experts() const {
    return static_cast<std::size_t>(experts == 0 ? 1 : experts);
  }  // with their own factors
  // "model.layers.0.self_attn.qkv_proj.q_proj_lora_A", or with no shard "model.layers.0.self_attn.o_proj.lora_A".
  std::string AName() const;
  std::string BName() const;
};

// The terms of all layers that adapters can target, in the tree's order: linear layers, routers, stacks of experts, the
// embedding and the head, on this rank alone; a draft model has none. `modules` narrows them to those whose path, last
// segment or shard is listed ("qkv_proj", "q_proj", "model.layers.0.mlp.down_proj"); empty: all. Throws
// kInvalidArgument, naming it, for an entry that fits none.
std::vector<AdapterTerm> AdapterTermsOf(const Module& model, std::span<const std::string> modules = {});

}  // namespace layercast
