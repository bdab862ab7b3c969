// Of every layer, all ranks together hold the original.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "layercast/model/embedding.h"
#include "layercast/model/linear.h"
#include "layercast/model/norm.h"
#include "tests/engine_side/model/layers/moves.h"
#include "tests/support/test_weights.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using testing::Range;
using testing::Rank;
using testing::Tree;
using testing::Weights;

struct RoundTrip {
  std::string name;
  std::function<std::unique_ptr<Module>(const LayerContext&)> make;
  std::vector<TensorSpec> tensors;
};

std::vector<RoundTrip> RoundTrips() {
  const auto f32 = [](const char* name, Shape shape) { return TensorSpec{name, DType::kF32, std::move(shape)}; };
  return {
      {"replicated",
       [](auto& c) { return std::make_unique<ReplicatedLinear>(c, 5, 16, true); },
       {f32("layer.weight", {16, 5}), f32("layer.bias", {16})}},
      {"column",
       [](auto& c) { return std::make_unique<ColumnParallelLinear>(c, 5, 16, true); },
       {f32("layer.weight", {16, 5}), f32("layer.bias", {16})}},
      {"merged",
       [](auto& c) {
         return std::make_unique<MergedColumnParallelLinear>(
             c, 5, std::vector<MergedShard>{{"gate_proj", 16}, {"up_proj", 8}}, true);
       },
       {f32("gate_proj.weight", {16, 5}), f32("up_proj.weight", {8, 5}), f32("gate_proj.bias", {16}),
        f32("up_proj.bias", {8})}},
      {"merged_on_disk",
       [](auto& c) {
         return std::make_unique<MergedColumnParallelLinear>(
             c, 5, std::vector<MergedShard>{{"gate_proj", 16}, {"up_proj", 8}}, false);
       },
       {f32("layer.weight", {24, 5})}},
      {"qkv",
       [](auto& c) { return std::make_unique<QKVParallelLinear>(c, 5, AttentionHeads{8, 2, 4, 3}, true); },
       {f32("q_proj.weight", {32, 5}), f32("k_proj.weight", {8, 5}), f32("v_proj.weight", {6, 5}),
        f32("q_proj.bias", {32}), f32("k_proj.bias", {8}), f32("v_proj.bias", {6})}},
      {"qkv_on_disk",
       [](auto& c) { return std::make_unique<QKVParallelLinear>(c, 5, AttentionHeads{8, 8, 4, 0}, false); },
       {f32("layer.weight", {96, 5})}},
      {"row",
       [](auto& c) { return std::make_unique<RowParallelLinear>(c, 16, 5, true); },
       {f32("layer.weight", {5, 16}), f32("layer.bias", {5})}},
      {"embedding",
       [](auto& c) { return std::make_unique<VocabParallelEmbedding>(c, 100, 5); },
       {f32("layer.weight", {100, 5})}},
      {"lm_head",
       [](auto& c) { return std::make_unique<ParallelLMHead>(c, 100, 5, true); },
       {f32("layer.weight", {100, 5}), f32("layer.bias", {100})}},
      {"norm", [](auto& c) { return std::make_unique<RMSNorm>(c, 7); }, {f32("layer.weight", {7})}},
  };
}

class LayerRoundTrip : public ::testing::TestWithParam<std::tuple<std::size_t, int>> {};

// Loads on every rank, then reads each rank's parameters back through the placements, element by element.
TEST_P(LayerRoundTrip, AllRanksTogetherHoldEveryElementAndReplicasAgree) {
  const RoundTrip trip = RoundTrips().at(std::get<0>(GetParam()));
  const int tp = std::get<1>(GetParam());
  Weights weights;
  for (const TensorSpec& spec : trip.tensors) weights.AddRandom(spec, static_cast<std::uint32_t>(weights.size()));
  std::vector<std::vector<int>> seen(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    seen[i].resize(static_cast<std::size_t>(weights.spec(i).num_elements()));
  }

  for (int rank = 0; rank < tp; ++rank) {
    Tree tree;
    Module& layer = tree.Add("layer", trip.make(Rank(rank, tp)));
    EXPECT_EQ(tree.load_weights(*weights.Stream()).size(), weights.size());
    for (std::size_t i = 0; i < weights.size(); ++i) {
      for (const PlacedPiece& piece : tree.Resolve(weights.spec(i)).pieces) {
        const Parameter& parameter = layer.parameters()[piece.parameter];
        const auto* local = reinterpret_cast<const float*>(parameter.storage.data());
        const auto* whole = reinterpret_cast<const float*>(weights.bytes(i).data());
        const bool matrix = piece.source.rank == 2;
        const std::int64_t cols = matrix ? piece.source.extent[1] : 1;
        for (std::int64_t e = 0; e < piece.source.num_elements(); ++e) {
          const auto index = [&](const Box& box, const Shape& shape) {
            const std::int64_t row = box.begin[0] + e / cols;
            return static_cast<std::size_t>(matrix ? row * shape[1] + box.begin[1] + e % cols : row);
          };
          const std::size_t at = index(piece.source, weights.spec(i).shape);
          ASSERT_EQ(local[index(piece.destination, parameter.spec.shape)], whole[at]);
          ++seen[i][at];
        }
      }
    }
    for (std::uint32_t p = 0; p < layer.parameters().size(); ++p) {
      const Parameter& parameter = layer.parameters()[p];
      const std::int64_t cols = parameter.spec.shape.size() == 2 ? parameter.spec.shape[1] : 1;
      for (const Box& box : layer.Padding(p)) {
        const auto* local = reinterpret_cast<const float*>(parameter.storage.data()) + box.begin[0] * cols;
        for (std::int64_t e = 0; !parameter.on_meta() && e < box.num_elements(); ++e) ASSERT_EQ(local[e], 0.0F);
      }
    }
  }
  for (const std::vector<int>& counts : seen) {
    for (const int count : counts) ASSERT_EQ(count, counts.front());  // all elements on equally many ranks
    EXPECT_GE(counts.front(), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryLayerOnOneToEightRanks, LayerRoundTrip,
                         ::testing::Combine(::testing::Range(std::size_t{0}, RoundTrips().size()),
                                            ::testing::Values(1, 2, 4, 8)),
                         [](const auto& parameters) {
                           return RoundTrips().at(std::get<0>(parameters.param)).name + "_tp" +
                                  std::to_string(std::get<1>(parameters.param));
                         });

}  // namespace
}  // namespace layercast
