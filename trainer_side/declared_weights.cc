#include "trainer_side/declared_weights.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "layercast/error.h"
#include "src/tensor/tensor_part.h"

namespace layercast {

void CheckOnePartEach(const Weights& weights) {
  if (weights.parts.empty() || weights.parts.size() == weights.specs.size()) return;
  throw Error(ErrorCode::kInvalidArgument, "weights of " + std::to_string(weights.specs.size()) + " specs and " +
                                               std::to_string(weights.parts.size()) +
                                               " parts: expected a part of each, or none");
}

void DeclaredWeights::Check(const NamedTensor& named) {
  if (specs_.empty()) return;
  const TensorSpec& declared = Take(named.name);
  if (declared.dtype != named.tensor.dtype || declared.shape != named.tensor.shape) {
    throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "': declared " + Describe(declared) + ", yielded " +
                                                 Describe(named.tensor.dtype, named.tensor.shape));
  }
  if (parts_.empty()) return;
  CheckYielded(declared, parts_[static_cast<std::size_t>(&declared - specs_.data())], named.part);
}

void DeclaredWeights::CheckEnd() {
  if (in_order_ == specs_.size()) return;
  AwaitRest();
  if (awaited_.empty()) return;
  const auto missing =
      std::ranges::find_if(specs_, [&](const TensorSpec& spec) { return awaited_.contains(spec.name); });
  const std::string first = "the walk ended without '" + missing->name + "'";
  const std::size_t others = awaited_.size() - 1;
  throw Error(
      ErrorCode::kInvalidArgument,
      first + (others == 0 ? ", which was declared" : " and " + std::to_string(others) + " more declared tensors"));
}

// Walks mostly yield in the declared order. Names are looked up only from the first tensor on that does not.
const TensorSpec& DeclaredWeights::Take(const std::string& name) {
  if (!looks_up_ && in_order_ < specs_.size() && specs_[in_order_].name == name) return specs_[in_order_++];
  AwaitRest();
  const auto spec = awaited_.find(name);
  if (spec == awaited_.end()) {
    throw Error(ErrorCode::kInvalidArgument, "'" + name + "' was yielded without being declared, or yielded twice");
  }
  return *awaited_.extract(spec).mapped();
}

void DeclaredWeights::AwaitRest() {
  if (looks_up_) return;
  looks_up_ = true;
  for (const TensorSpec& spec : std::span(specs_).subspan(in_order_)) awaited_.emplace(spec.name, &spec);
}

}  // namespace layercast
