#include "engine_side/engine/cpu/blocks/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine_side/engine/cpu/blocks/adapted_linear.h"
#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void Softmax(std::vector<float>& scores) {
  const float most = *std::ranges::max_element(scores);
  float sum = 0.0F;
  for (float& score : scores) sum += score = std::exp(score - most);
  for (float& score : scores) score /= sum;
}

// The indices of the `count` largest values, the largest first; of equal values the first comes first. NaN counts as
// less than any other value.
std::vector<std::size_t> Largest(std::span<const float> values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto value = [&](std::size_t i) { return std::isnan(values[i]) ? kNever : values[i]; };
  const auto before = [&](std::size_t a, std::size_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; };
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(count), before);
  order.resize(count);
  return order;
}

// A group's score is the sum of its few best experts' scores. The experts of all but the best groups become unpickable.
void KeepBestGroups(const Routing& routing, std::vector<float>& scores) {
  const auto groups = static_cast<std::size_t>(routing.num_groups);
  const std::size_t size = scores.size() / groups;
  const auto of_group = static_cast<std::size_t>(routing.group_best);
  std::vector<float> best(groups, 0.0F);
  for (std::size_t g = 0; g < groups; ++g) {
    const auto group = std::span(scores).subspan(g * size, size);
    for (const std::size_t i : Largest(group, std::min(of_group, size))) best[g] += group[i];
  }
  const std::vector<std::size_t> kept = Largest(best, static_cast<std::size_t>(routing.top_groups));
  for (std::size_t g = 0; g < groups; ++g) {
    if (std::ranges::count(kept, g) == 0) std::ranges::fill(std::span(scores).subspan(g * size, size), kNever);
  }
}

}  // namespace

std::vector<Choice> ChooseExperts(const Routing& routing, std::span<const float> logits, std::span<const float> bias) {
  std::vector<float> scores(logits.begin(), logits.end());
  if (routing.score == Routing::Score::kSoftmax) {
    Softmax(scores);
  } else {
    for (float& score : scores) score = Sigmoid(score);
  }
  std::vector<float> preference = scores;
  for (std::size_t i = 0; i < bias.size(); ++i) preference[i] += bias[i];
  if (routing.num_groups > 1) KeepBestGroups(routing, preference);
  std::vector<Choice> choices;
  float sum = 0.0F;
  for (const std::size_t expert : Largest(preference, static_cast<std::size_t>(routing.top_k))) {
    choices.push_back({expert, scores[expert]});
    sum += scores[expert];
  }
  for (Choice& choice : choices) {
    if (routing.normalize) choice.weight /= sum + static_cast<float>(routing.normalize_epsilon);
    choice.weight *= static_cast<float>(routing.scale);
  }
  return choices;
}

RoutedTokens Router::Route(const SlotGroups& groups, const Activations& in) {
  ColumnParallel(in, description_.logits, groups, logits_);  // every rank has all logits
  const std::optional<WeightView>& bias = description_.correction_bias;
  const std::vector<float> biases = bias ? ReadVector(*bias) : std::vector<float>();
  RoutedTokens routed(description_.logits.weight.rows);
  for (std::size_t row = 0; row < in.rows(); ++row) {
    for (Choice& choice : ChooseExperts(description_.routing, logits_[row], biases)) {
      RoundTo(description_.weights_dtype, {&choice.weight, 1});
      routed[choice.expert].push_back({row, choice.weight});
    }
  }
  return routed;
}

}  // namespace layercast
