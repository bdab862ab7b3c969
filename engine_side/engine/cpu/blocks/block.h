// Blocks, of which a decoder layer is made: each reads one row per token and writes one. A block that computes
// something new is described in block_description.h, and gets a file of its own, like attention_block, and a line in
// MakeBlock. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine_side/engine/blocks/block_description.h"
#include "engine_side/engine/cpu/kernels/activations.h"
#include "engine_side/engine/ranks/collective.h"
#include "layercast/dtype.h"

namespace layercast {

// Converts one of a model's sizes for counting elements in memory.
inline std::size_t Size(std::int64_t size) { return static_cast<std::size_t>(size); }

// One token of a forward pass. Value.
struct TokenRow {
  std::uint64_t sequence = 0;
  std::size_t position = 0;
  std::int32_t token = 0;
  bool wants_logits = false;
  std::int32_t adapter = -1;  // the adapter slot; -1: none
};

// Resource; one thread only. All ranks make the same calls in the same order.
class Block {
 public:
  virtual ~Block() = default;

  // Sets `out` to the block's output for each row of `in`, complete on every rank and rounded to the model's dtype. The
  // rows of a sequence come in order, each position once. A token's output must not depend on the other sequences in
  // the pass, nor on how its own sequence was cut into passes, nor on adapter slots other than its own.
  virtual void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) = 0;

  // Forgets what the block keeps (keys and values, states) of one sequence, or of all sequences.
  virtual void Drop(std::uint64_t /*sequence*/) {}
  virtual void DropAll() {}
};

// What a block is made with. The collective must outlive the block.
struct BlockContext {
  Collective& collective;
  DType dtype = DType::kBF16;  // activations are rounded to it after every operation, as in torch
};

// Makes the block that computes what is described. What the description borrows must outlive the block.
std::unique_ptr<Block> MakeBlock(BlockDescription description, const BlockContext& context);

}  // namespace layercast
