// Which experts rows go to in the decode step in tensors, against the CPU engine's router: ties, NaN and groups too.
#include "engine_side/engine/torch/tensors/tensor_router.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <span>
#include <vector>

#include "engine_side/engine/cpu/blocks/router.h"

namespace layercast::testing {
namespace {

constexpr std::size_t kExperts = 12;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// Few different values, so that many are equal.
std::vector<float> Rows(std::size_t rows) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> few(-3, 3);
  std::vector<float> values(rows * kExperts);
  for (float& value : values) value = 0.7F * static_cast<float>(few(random));
  return values;
}

void ExpectAsTheDecoders(const Routing& routing, std::vector<float> logits, std::vector<float> bias) {
  const auto rows = static_cast<std::int64_t>(logits.size() / kExperts);
  const at::Tensor in = at::from_blob(logits.data(), {rows, kExperts}, at::kFloat);
  const RoutedRows routed = ChooseExperts(routing, in, bias.empty() ? at::Tensor() : at::tensor(bias));
  for (std::int64_t row = 0; row < rows; ++row) {
    at::Tensor chosen = at::zeros({kExperts}, at::kBool);
    at::Tensor weights = at::zeros({kExperts}, at::kFloat);
    const auto of_row = std::span(logits).subspan(static_cast<std::size_t>(row) * kExperts, kExperts);
    for (const Choice& choice : ChooseExperts(routing, of_row, bias)) {
      chosen[static_cast<std::int64_t>(choice.expert)] = true;
      weights[static_cast<std::int64_t>(choice.expert)] = choice.weight;
    }
    EXPECT_TRUE(routed.chosen[row].equal(chosen)) << "row " << row;
    EXPECT_TRUE(routed.weights[row].allclose(weights, 1e-6, 1e-7, /*equal_nan=*/true)) << "row " << row;
  }
}

TEST(TensorRouter, PicksAsTheDecodersOfEqualOnesTheFirst) {
  ExpectAsTheDecoders({.top_k = 4}, Rows(20), {});
  ExpectAsTheDecoders({.normalize = true, .normalize_epsilon = 1e-3, .top_k = 5, .scale = 1.7}, Rows(20), {});
  ExpectAsTheDecoders({.score = Routing::Score::kSigmoid, .top_k = 3}, Rows(20), std::vector<float>(kExperts, 0.25F));
}

TEST(TensorRouter, PicksOfTheBestGroupsAsTheDecoders) {
  for (const std::int64_t group_best : {1, 2, 9}) {
    SCOPED_TRACE(group_best);
    const Routing routing{.score = Routing::Score::kSigmoid,
                          .normalize = true,
                          .group_best = group_best,
                          .top_k = 3,
                          .num_groups = 4,
                          .top_groups = 2};
    ExpectAsTheDecoders(routing, Rows(20), {});
    std::vector<float> bias = Rows(1);
    bias[5] = kNotANumber;
    ExpectAsTheDecoders(routing, Rows(20), bias);
  }
}

TEST(TensorRouter, PicksWhatIsNoNumberLast) {
  std::vector<float> logits = Rows(20);
  for (std::size_t i = 0; i < logits.size(); i += 3) logits[i] = kNotANumber;
  ExpectAsTheDecoders({.score = Routing::Score::kSigmoid, .top_k = 4}, logits, {});
  ExpectAsTheDecoders({.score = Routing::Score::kSigmoid, .normalize = true, .top_k = 10}, logits, {});
}

}  // namespace
}  // namespace layercast::testing
