#include "engine_side/engine/torch/tensors/tensor_low_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/where.h>

#include "engine_side/engine/torch/tensors/tensor_linear.h"
#include "engine_side/engine/torch/tensors/torch_type.h"

namespace layercast {
namespace {

// The factors of all slots, [slots, (experts,) ...], of which one expert is taken.
at::Tensor FactorsOfSlots(std::byte* address, const AdapterOperand& adapter, const AdapterTerm& term, Shape shape,
                          const at::Device& device) {
  shape.insert(shape.begin(), static_cast<std::int64_t>(adapter.slots->sizes().slots));
  const at::Tensor all = at::for_blob(address, shape)
                             .options(at::TensorOptions(*TorchTypeOf(adapter.slots->sizes().dtype)).device(device))
                             .target_device(device)
                             .make_tensor();
  return term.experts == 0 ? all : all.select(1, static_cast<std::int64_t>(adapter.expert));
}

}  // namespace

TensorLowRank::TensorLowRank(const AdapterOperand& adapter, const at::Device& device) {
  for (std::size_t i = adapter.first; i < adapter.first + adapter.count; ++i) {
    const AdapterTerm& term = adapter.slots->terms()[i];
    const std::int64_t max_rank = adapter.slots->sizes().max_rank;
    terms_.push_back({.a = FactorsOfSlots(adapter.slots->A(i), adapter, term, term.AShape(max_rank), device),
                      .b = FactorsOfSlots(adapter.slots->B(i), adapter, term, term.BShape(max_rank), device),
                      .first_row = term.first_row,
                      .number = static_cast<std::int64_t>(adapter.slots->first_number(i) + adapter.expert)});
  }
}

void TensorLowRank::AddTo(const at::Tensor& y, const at::Tensor& x, const StepInputs& inputs,
                          at::ScalarType type) const {
  for (const Term& term : terms_) {
    for (std::int64_t slot = 0; slot < term.a.size(0); ++slot) {
      const OfSlot of = At(term, inputs, slot);
      Add(term, of, at::mm(x, of.a.t()), y, type, 1.0);
    }
  }
}

void TensorLowRank::AddLookedUp(const at::Tensor& y, const StepInputs& inputs, at::ScalarType type,
                                double factor) const {
  for (const Term& term : terms_) {
    for (std::int64_t slot = 0; slot < term.a.size(0); ++slot) {
      const OfSlot of = At(term, inputs, slot);
      Add(term, of, at::index_select(of.a, 0, inputs.tokens), y, type, factor);
    }
  }
}

TensorLowRank::OfSlot TensorLowRank::At(const Term& term, const StepInputs& inputs, std::int64_t slot) {
  const at::Tensor scale = inputs.adapter_scales.select(0, slot).narrow(0, term.number, 1);
  return {.a = term.a.select(0, slot).to(at::kFloat),
          .b = term.b.select(0, slot).to(at::kFloat),
          .scale = scale,
          .rows = (inputs.adapters == slot).logical_and_(scale != 0.0)};
}

void TensorLowRank::Add(const Term& term, const OfSlot& of, const at::Tensor& h, const at::Tensor& y,
                        at::ScalarType type, double factor) {
  const at::Tensor part = y.narrow(1, term.first_row, of.b.size(0));
  const at::Tensor sum = Rounded(part + at::mm(h, of.b.t()) * (of.scale * factor), type);
  part.copy_(at::where(of.rows.unsqueeze(1), sum, part));
}

}  // namespace layercast
