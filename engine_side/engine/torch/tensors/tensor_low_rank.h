// What LoRA adapters add to a layer's output in the decode step: see engine_side/engine/cpu/blocks/low_rank.h. Used by
// linear layers, by latent attention, and by the step's embedding and head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "engine_side/engine/blocks/adapter_operand.h"
#include "engine_side/engine/torch/tensors/step_inputs.h"

namespace layercast {

// Only the device knows which slots the rows have, so every slot's terms are computed for every row, and count for
// those rows that have the slot: a step costs what it would with all slots in use. A slot's factors and scales may
// change between replays. Value; the slots' memory is borrowed.
class TensorLowRank {
 public:
  // One slot's factors of one term, as fp32, and which rows they count for.
  struct OfSlot {
    at::Tensor a, b;   // [max_rank, columns], or, looked up, [columns, max_rank]; [rows, max_rank]
    at::Tensor scale;  // [1]
    at::Tensor rows;   // bool [rows of the step]
  };

  TensorLowRank(const AdapterOperand& adapter, const at::Device& device);

  bool empty() const { return terms_.empty(); }
  // y := round(y + scale * (B (A x))), in place. What does not count leaves y's bits alone, whatever it holds.
  void AddTo(const at::Tensor& y, const at::Tensor& x, const StepInputs& inputs, at::ScalarType type) const;
  // y := round(y + factor * scale * (B h)), in place, with h = A's row of each row's token.
  void AddLookedUp(const at::Tensor& y, const StepInputs& inputs, at::ScalarType type, double factor) const;

  // For what combines them in another way: the only term's, by slot.
  std::int64_t slots() const { return empty() ? 0 : terms_.front().a.size(0); }
  OfSlot At(const StepInputs& inputs, std::int64_t slot) const { return At(terms_.front(), inputs, slot); }

 private:
  struct Term {
    at::Tensor a, b;  // of all slots
    std::int64_t first_row, number;
  };
  static OfSlot At(const Term& term, const StepInputs& inputs, std::int64_t slot);
  static void Add(const Term& term, const OfSlot& of, const at::Tensor& h, const at::Tensor& y, at::ScalarType type,
                  double factor);

  std::vector<Term> terms_;
};

}  // namespace layercast
