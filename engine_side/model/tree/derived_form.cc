#include "engine_side/model/tree/derived_form.h"

#include <algorithm>
#include <cstddef>

#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

// There is one WrongIn for each form. It returns what the form expects and does not get; empty if all is well.

std::string WrongIn(const DerivedTensor::StridedView& view, const DerivedTensor& derived) {
  const TensorSpec& source = derived.sources.front();
  const Shape& shape = derived.spec.shape;
  if (source.dtype != derived.spec.dtype) return "the source's dtype, " + std::string(Name(source.dtype));
  if (shape.size() > DerivedTensor::StridedView::kMaxRank) return "at most five dimensions";
  if (view.strides.size() != shape.size()) {
    return std::to_string(shape.size()) + " strides, got " + std::to_string(view.strides.size());
  }
  const bool negative = view.offset < 0 || std::ranges::any_of(view.strides, [](std::int64_t s) { return s < 0; });
  if (negative) return "an offset and strides that are not negative";
  if (derived.spec.num_elements() == 0) return {};
  std::int64_t last = view.offset;
  for (std::size_t d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * view.strides[d];
  if (last < source.num_elements()) return {};
  return "elements within the source's " + std::to_string(source.num_elements()) + ", got number " +
         std::to_string(last);
}

std::string WrongIn(const DerivedTensor::NegatedExponential& /*form*/, const DerivedTensor& derived) {
  const TensorSpec& source = derived.sources.front();
  if (!CanCast(source.dtype, DType::kF32)) return "a source of f16, bf16, f32 or f64";
  const TensorSpec expected{derived.spec.name, DType::kF32, source.shape};
  return expected == derived.spec ? "" : Describe(expected);
}

std::string WrongIn(const DerivedTensor::Compute& compute, const DerivedTensor& /*derived*/) {
  return compute ? "" : "a function, got null";
}

}  // namespace

void CheckForm(const DerivedTensor& derived, const std::string& layer) {
  const bool is_computed = std::holds_alternative<DerivedTensor::Compute>(derived.form);
  std::string wrong;
  if (!is_computed && derived.sources.size() != 1) {
    wrong = "one source, got " + std::to_string(derived.sources.size());
  } else {
    wrong = std::visit([&](const auto& form) { return WrongIn(form, derived); }, derived.form);
  }
  if (wrong.empty()) return;
  throw Error(ErrorCode::kInvalidArgument, layer + ": '" + derived.spec.name + "' (" + Describe(derived.spec) +
                                               "), which derives from parameters: expected " + wrong);
}

}  // namespace layercast
