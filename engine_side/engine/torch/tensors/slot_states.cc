#include "engine_side/engine/torch/tensors/slot_states.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>

#include <vector>

#include "engine_side/engine/torch/tensors/slot_cache.h"

namespace layercast {

SlotStates::SlotStates(at::IntArrayRef shape, const TensorContext& context) {
  std::vector<std::int64_t> sizes = shape.vec();
  sizes.insert(sizes.begin(), context.shape.slots + 1);
  memory_ = ZeroCache(sizes, at::kFloat, context);
}

at::Tensor SlotStates::Of(const StepInputs& inputs) const {
  std::vector<std::int64_t> by_row(static_cast<std::size_t>(memory_.dim()), 1);
  by_row[0] = -1;
  return at::index_select(memory_, 0, inputs.slots).masked_fill_((inputs.positions == 0).view(by_row), 0.0);
}

void SlotStates::Put(const StepInputs& inputs, const at::Tensor& states) {
  memory_.index_copy_(0, inputs.slots, states);
}

}  // namespace layercast
