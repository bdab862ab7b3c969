// What LoRA adapters add to a layer's output on the CPU: scale * (B (A x)), in fp32, for those rows that have a slot.
// Used by adapted_linear and by the decoder's embedding and head. Torch-free.
//
// What a row gets depends on its own slot's bytes alone: neither on the other rows, nor on which number the slot has.
// A row without a slot, or whose slot has nothing for a layer, is not touched.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine_side/engine/blocks/adapter_operand.h"
#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/kernels/activations.h"
#include "engine_side/engine/ranks/collective.h"
#include "layercast/dtype.h"
#include "layercast/model/embedding.h"

namespace layercast {

// The rows of a pass that have one slot, in order. Value.
struct SlotGroup {
  std::size_t slot = 0;
  std::vector<std::size_t> rows;
};
using SlotGroups = std::vector<SlotGroup>;  // in the order of their first rows; rows without a slot are in none

SlotGroups GroupBySlot(std::span<const TokenRow> rows);

// A term of a layer that a group's slot has something for. Value; memory borrowed.
struct LowRankTerm {
  const SlotGroup* group;
  const AdapterTerm* term;
  // As much of them as the adapter's rank needs: A [rank, columns], or, looked up, [columns, rank]; B [rows, rank].
  WeightView a, b;
  float scale;
};

// All of a layer, by group. Empty: nothing is added. How many there are, and their ranks, are the same on all ranks
// that share a layer, because the numbers of their slots are.
std::vector<LowRankTerm> TermsOf(const AdapterOperand& adapter, const SlotGroups& groups);

// The small vectors h = A x of the rows of all groups, for all terms of a layer that their slots have something for.
// Borrows the groups; one thread only.
class LowRank {
 public:
  LowRank(const AdapterOperand& adapter, const SlotGroups& groups);

  bool empty() const { return parts_.empty(); }  // nothing is added
  // h = A x. `x` has the rows of the pass.
  void Shrink(const Activations& x);
  // h = A's row of each row's token; zeros for tokens that are not in the range, which is this rank's.
  void LookUp(std::span<const TokenRow> rows, const VocabRange& range);
  // Sums h over ranks, in one exchange.
  void SumOver(Collective& collective);
  // y := round(y + factor * scale * B h), in those rows of the layer's output that a term has.
  void AddTo(DType dtype, Activations& y, float factor = 1.0F) const;

 private:
  struct Part : LowRankTerm {
    Activations h;  // of the group's rows
  };

  std::vector<Part> parts_;
};

}  // namespace layercast
