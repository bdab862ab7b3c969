#include "engine_side/engine/torch/tensors/slot_cache.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <c10/util/accumulate.h>

#include <cstddef>

namespace layercast {

at::Tensor ZeroCache(at::IntArrayRef sizes, at::ScalarType type, const TensorContext& context) {
  const at::TensorOptions options = at::TensorOptions(type).device(context.device);
  MemoryResource* const memory = context.shape.caches;
  if (memory == nullptr) return at::zeros(sizes, options);
  const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  const auto give_back = [memory, bytes](void* held) { memory->Deallocate(static_cast<std::byte*>(held), bytes); };
  return at::from_blob(memory->Allocate(bytes), sizes, give_back, options, context.device);
}

SlotCache::SlotCache(std::int64_t heads, std::int64_t size, const TensorContext& context)
    : memory_(ZeroCache({context.shape.slots + 1, context.shape.max_tokens, heads, size}, context.type, context)),
      all_positions_(at::arange(context.shape.max_tokens, at::TensorOptions(at::kLong).device(context.device))) {}

void SlotCache::Put(const StepInputs& inputs, const at::Tensor& vectors) {
  const at::Tensor places = inputs.slots * memory_.size(1) + inputs.positions;
  memory_.flatten(0, 1).index_copy_(0, places, vectors.to(memory_.scalar_type()));
}

at::Tensor SlotCache::Of(const StepInputs& inputs) const {
  return at::index_select(memory_, 0, inputs.slots).to(at::kFloat).transpose(1, 2);
}

at::Tensor SlotCache::Unseen(const StepInputs& inputs, std::int64_t window) const {
  const at::Tensor last = inputs.positions.unsqueeze(1);
  const at::Tensor later = all_positions_ > last;
  return window == 0 ? later : later | (all_positions_ <= last - window);
}

}  // namespace layercast
