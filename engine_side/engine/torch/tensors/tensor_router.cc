#include "engine_side/engine/torch/tensors/tensor_router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "engine_side/engine/torch/tensors/torch_type.h"

namespace layercast {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Sorted {
  at::Tensor values, places;
};

// The `count` largest values of each row, the largest first; of equal values the first comes first. NaN counts as less
// than any other value.
Sorted Largest(const at::Tensor& values, std::int64_t count) {
  const auto [sorted, places] =
      at::sort(values.masked_fill(at::isnan(values), kNever), /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  return {sorted.narrow(-1, 0, count), places.narrow(-1, 0, count)};
}

// Whether each of a row's values is among its `count` largest.
at::Tensor AmongLargest(const at::Tensor& values, std::int64_t count) {
  return at::zeros_like(values, at::kBool).scatter_(-1, Largest(values, count).places, true);
}

// A group's score is the sum of its few best experts' scores. The experts of all but the best groups become unpickable.
at::Tensor KeepBestGroups(const Routing& routing, const at::Tensor& preference) {
  const at::Tensor groups = preference.unflatten(-1, {routing.num_groups, -1});
  const at::Tensor best = Largest(groups, std::min(routing.group_best, groups.size(-1))).values.sum(-1);
  const at::Tensor kept = AmongLargest(best, routing.top_groups);
  return groups.masked_fill(kept.logical_not().unsqueeze(-1), kNever).flatten(1);
}

}  // namespace

RoutedRows ChooseExperts(const Routing& routing, const at::Tensor& logits, const at::Tensor& bias) {
  const at::Tensor scores = routing.score == Routing::Score::kSoftmax ? at::softmax(logits, -1) : at::sigmoid(logits);
  at::Tensor preference = bias.defined() ? scores + bias : scores;
  if (routing.num_groups > 1) preference = KeepBestGroups(routing, preference);
  const at::Tensor chosen = AmongLargest(preference, routing.top_k);
  const auto of_chosen = [&](const at::Tensor& values) { return values.masked_fill(chosen.logical_not(), 0.0); };
  at::Tensor weights = scores;
  if (routing.normalize) weights = weights / (of_chosen(scores).sum(-1, /*keepdim=*/true) + routing.normalize_epsilon);
  return {chosen, of_chosen(weights * routing.scale)};
}

TensorRouter::TensorRouter(const RouterDescription& description, const at::Device& device)
    : routing_(description.routing),
      weights_type_(*TorchTypeOf(description.weights_dtype)),
      logits_(description.logits, device),
      correction_bias_(IfAny<WeightTensor>(description.correction_bias, device)) {}

RoutedRows TensorRouter::Route(const StepInputs& inputs, const at::Tensor& in) const {
  const at::Tensor bias = correction_bias_ ? correction_bias_->ReadVector() : at::Tensor();
  RoutedRows routed = ChooseExperts(routing_, logits_.Apply(inputs, in), bias);
  routed.weights = Rounded(routed.weights, weights_type_);
  return routed;
}

}  // namespace layercast
