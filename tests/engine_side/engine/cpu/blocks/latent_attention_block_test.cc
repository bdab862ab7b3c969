// What an adapter of kv_b_proj adds to latent attention, against the layer that was absorbed.
#include "engine_side/engine/cpu/blocks/latent_attention_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace layercast::testing {
namespace {

constexpr std::size_t kHeads = 3, kNope = 4, kValue = 5, kLatent = 6, kRank = 2;
constexpr double kScale = 1.5;

std::vector<float> Normal(std::size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return normal(random); });
  return values;
}

// kv_b_proj, W [heads * (keys + values), latent], with its adapter, in fp64.
struct AbsorbedLayer {
  std::vector<float> w, a, b;

  double Merged(std::size_t row, std::size_t c) const {
    double delta = 0;
    for (std::size_t j = 0; j < kRank; ++j) delta += double{b[row * kRank + j]} * double{a[j * kLatent + c]};
    return double{w[row * kLatent + c]} + kScale * delta;
  }
  // With the merged weight: of a query its product with the latent vectors, of latent vectors a head's output.
  double Query(std::size_t first_row, const std::vector<float>& q, std::size_t c) const {
    double sum = 0;
    for (std::size_t i = 0; i < q.size(); ++i) sum += double{q[i]} * Merged(first_row + i, c);
    return sum;
  }
  double Value(std::size_t row, const std::vector<float>& o) const {
    double sum = 0;
    for (std::size_t c = 0; c < kLatent; ++c) sum += Merged(row, c) * double{o[c]};
    return sum;
  }
  // The same as corrections: q W_UK + s (q B_K) A, and W_UV o + s B_V (A o).
  double CorrectedQuery(std::size_t first_row, const std::vector<float>& q, std::size_t c) const {
    double sum = 0;
    for (std::size_t i = 0; i < q.size(); ++i) sum += double{q[i]} * double{w[(first_row + i) * kLatent + c]};
    for (std::size_t j = 0; j < kRank; ++j) {
      double h = 0;
      for (std::size_t i = 0; i < q.size(); ++i) h += double{q[i]} * double{b[(first_row + i) * kRank + j]};
      sum += kScale * h * double{a[j * kLatent + c]};
    }
    return sum;
  }
  double CorrectedValue(std::size_t row, const std::vector<float>& o) const {
    double sum = 0;
    for (std::size_t c = 0; c < kLatent; ++c) sum += double{w[row * kLatent + c]} * double{o[c]};
    for (std::size_t j = 0; j < kRank; ++j) {
      double h = 0;
      for (std::size_t c = 0; c < kLatent; ++c) h += double{a[j * kLatent + c]} * double{o[c]};
      sum += kScale * double{b[row * kRank + j]} * h;
    }
    return sum;
  }
};

// Golden case 30: 3 heads, keys of 4, values of 5, latent vectors of 6, rank 2, scale 1.5.
TEST(KeyValueDelta, Case30CorrectsBothWaysThatAnAbsorbedLayerIsUsed) {
  std::mt19937 random(30);
  const std::size_t rows = kHeads * (kNope + kValue);
  const AbsorbedLayer layer{Normal(rows * kLatent, random), Normal(kRank * kLatent, random),
                            Normal(rows * kRank, random)};
  const KeyValueDelta delta{nullptr, kRank, static_cast<float>(kScale), layer.a, layer.b};
  for (std::size_t head = 0; head < kHeads; ++head) {
    const std::size_t keys = head * (kNope + kValue), values = keys + kNope;
    const std::vector<float> query = Normal(kNope, random), of_values = Normal(kLatent, random);
    std::vector<float> in_latent(kLatent), out(kValue);
    for (std::size_t i = 0; i < kNope; ++i) {
      for (std::size_t c = 0; c < kLatent; ++c) in_latent[c] += query[i] * layer.w[(keys + i) * kLatent + c];
    }
    delta.AddToQuery(keys, query, in_latent);
    for (std::size_t c = 0; c < kLatent; ++c) {
      const double expected = layer.Query(keys, query, c);
      EXPECT_NEAR(layer.CorrectedQuery(keys, query, c), expected, 1e-14 * std::max(1.0, std::fabs(expected)));
      EXPECT_NEAR(in_latent[c], expected, 1e-5);
    }
    for (std::size_t i = 0; i < kValue; ++i) {
      for (std::size_t c = 0; c < kLatent; ++c) out[i] += layer.w[(values + i) * kLatent + c] * of_values[c];
    }
    delta.AddToValue(values, of_values, out);
    for (std::size_t i = 0; i < kValue; ++i) {
      const double expected = layer.Value(values + i, of_values);
      EXPECT_NEAR(layer.CorrectedValue(values + i, of_values), expected, 1e-14 * std::max(1.0, std::fabs(expected)));
      EXPECT_NEAR(out[i], expected, 1e-5);
    }
  }
}

}  // namespace
}  // namespace layercast::testing
