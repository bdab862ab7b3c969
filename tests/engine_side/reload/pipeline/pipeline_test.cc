#include "engine_side/reload/pipeline/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/reload/rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Rig;
using testing::RigOptions;
using testing::ServedBytes;
using testing::ServedSlowly;

struct Way {
  std::uint64_t chunk_bytes = 4U << 20;
  bool direct = false;
  int shuffle_seed = -1;  // negative: in order
  std::byte fill{0xA5};
};

ServedBytes Load(const RigOptions& options, const Way& way) {
  Rig rig(options, way.fill);
  std::vector<Piece> pieces = rig.Pieces(way.chunk_bytes);
  ReloadPipeline pipeline(rig.parts(), way.direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
  rig.GiveAmax(pipeline.amax());
  if (way.shuffle_seed >= 0) {
    std::ranges::shuffle(pieces, std::mt19937(static_cast<std::uint32_t>(way.shuffle_seed)));
  }
  for (const Piece& piece : pieces) pipeline.Accept(piece, rig.ViewOf(piece));
  pipeline.Finish();
  EXPECT_EQ(pipeline.layers_done(), rig.plan.layers().size());
  EXPECT_EQ(rig.memory.current_bytes(), 0U);
  return rig.Staged();
}

// A recipe, a rank and the number of ranks.
class PipelineOfEveryRecipe : public ::testing::TestWithParam<std::tuple<const char*, std::pair<int, int>>> {
 protected:
  RigOptions options() const {
    const auto [rank, size] = std::get<1>(GetParam());
    return {.recipe = std::get<0>(GetParam()), .parallel = {rank, size}};
  }
};

TEST_P(PipelineOfEveryRecipe, GivesTheBytesOfTheSlowReferenceByAnyWay) {
  const ServedBytes expected = ServedSlowly(options(), testing::RigWeights(options()));
  const std::byte other_fill{0x3C};
  EXPECT_THAT(Differences(Load(options(), {}), expected), IsEmpty()) << "five stages";
  EXPECT_THAT(Differences(Load(options(), {.direct = true}), expected), IsEmpty()) << "direct";
  EXPECT_THAT(Differences(Load(options(), {.fill = other_fill}), expected), IsEmpty()) << "another fill";
  EXPECT_THAT(Differences(Load(options(), {.chunk_bytes = 700, .shuffle_seed = 1}), expected), IsEmpty()) << "crumbs";
  EXPECT_THAT(Differences(Load(options(), {.chunk_bytes = 9000, .direct = true, .shuffle_seed = 2, .fill = other_fill}),
                          expected),
              IsEmpty())
      << "direct, in disorder";
  EXPECT_THAT(Differences(Load(options(), {.chunk_bytes = 40'000, .direct = true, .shuffle_seed = 3}), expected),
              IsEmpty())
      << "direct, whole blocks of rows, in disorder";
}

INSTANTIATE_TEST_SUITE_P(Ranks, PipelineOfEveryRecipe,
                         ::testing::Combine(::testing::Values("none", "fp8_per_tensor", "fp8_per_channel",
                                                              "fp8_per_block"),
                                            ::testing::Values(std::pair(0, 1), std::pair(1, 2), std::pair(0, 4),
                                                              std::pair(2, 4), std::pair(3, 4))));

TEST(Pipeline, CastsWhatTheTrainerHoldsInAnotherDtypeByEitherWay) {
  for (const char* recipe : {"none", "fp8_per_channel"}) {
    const RigOptions options{.recipe = recipe, .parallel = {1, 2}, .source = DType::kF32};
    const ServedBytes expected = ServedSlowly(options, testing::RigWeights(options));
    EXPECT_THAT(Differences(Load(options, {}), expected), IsEmpty());
    EXPECT_THAT(Differences(Load(options, {.chunk_bytes = 5000, .direct = true}), expected), IsEmpty());
  }
}

TEST(Pipeline, GoesDirectWhereItCanAndHoldsNothingThen) {
  Rig rig({.recipe = "fp8_per_tensor"});
  const std::vector<Piece> pieces = rig.Pieces();
  ReloadPipeline pipeline(rig.parts(), pieces);
  for (const Piece& piece : pieces) pipeline.Accept(piece, rig.ViewOf(piece));
  pipeline.Finish();
  EXPECT_TRUE(pipeline.IsDirect(rig.LayerOf("model.layers.0.self_attn.qkv_proj")));
  EXPECT_EQ(rig.memory.allocations(), 0U);
  EXPECT_EQ(pipeline.buffer().peak_bytes(), 0U);
}

TEST(Pipeline, BuffersWhatNeedsMoreThanItsPieces) {
  // Pieces that end inside a block of rows, and a fused weight whose parts meet inside one.
  Rig crumbs({.recipe = "fp8_per_block"});
  const std::string qkv = "model.layers.0.self_attn.qkv_proj";
  EXPECT_FALSE(ReloadPipeline(crumbs.parts(), crumbs.Pieces(3000)).IsDirect(crumbs.LayerOf(qkv)));
  EXPECT_TRUE(ReloadPipeline(crumbs.parts(), crumbs.Pieces()).IsDirect(crumbs.LayerOf(qkv)));
  Rig quarter({.recipe = "fp8_per_block", .parallel = {0, 4}});
  EXPECT_FALSE(ReloadPipeline(quarter.parts(), quarter.Pieces()).IsDirect(quarter.LayerOf(qkv)));
}

TEST(Pipeline, HoldsOneLayerAtATimeInOrder) {
  Rig rig({.recipe = "fp8_per_block", .layers = 3});
  std::uint64_t largest = 0;
  for (const PlannedLayer& layer : rig.plan.layers()) {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      bytes += static_cast<std::uint64_t>(rig.plan.parameters()[layer.first_parameter + i].spec.num_bytes());
    }
    largest = std::max(largest, bytes);
  }
  ReloadPipeline pipeline(rig.parts(), {});
  for (const Piece& piece : rig.Pieces(10'000)) pipeline.Accept(piece, rig.ViewOf(piece));
  pipeline.Finish();
  EXPECT_EQ(rig.memory.peak_bytes(), largest);
  EXPECT_EQ(pipeline.buffer().peak_bytes(), largest);
  EXPECT_THAT(pipeline.buffer().episodes(), IsEmpty());
}

TEST(Pipeline, NamesEveryTensorThatIsStillAwaited) {
  for (const bool direct : {false, true}) {
    Rig rig;
    const std::vector<Piece> pieces = rig.Pieces(10'000);
    ReloadPipeline pipeline(rig.parts(), direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
    const std::uint32_t never = rig.PlacementOf("model.layers.0.self_attn.v_proj.bias");
    const std::uint32_t partly = rig.PlacementOf("model.layers.0.mlp.up_proj.weight");
    for (const Piece& piece : pieces) {
      if (piece.placement == never || (piece.placement == partly && piece.begin == 0)) continue;
      pipeline.Accept(piece, rig.ViewOf(piece));
    }
    EXPECT_THAT(ErrorOf([&] { pipeline.Finish(); }),
                AllOf(HasSubstr("before 2 tensors were whole"),
                      HasSubstr("'model.layers.0.self_attn.v_proj.bias', 'model.layers.0.mlp.up_proj.weight'")));
  }
}

TEST(Pipeline, RefusesBytesThatWereHereBeforeByEitherWay) {
  for (const bool direct : {false, true}) {
    Rig rig;
    const std::vector<Piece> pieces = rig.Pieces();
    ReloadPipeline pipeline(rig.parts(), direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
    const Piece norm = rig.Whole("model.norm.weight");
    pipeline.Accept(norm, rig.ViewOf(norm));
    EXPECT_THAT(ErrorOf([&] { pipeline.Accept(norm, rig.ViewOf(norm)); }),
                HasSubstr("layer model.norm: 'model.norm.weight' arrived twice"));
  }
}

// 70000 is finite in bf16 and is not in f16.
TEST(Pipeline, RefusesAValueThatTheModelsDtypeCannotHoldByEitherWay) {
  const RigOptions options{.dtype = DType::kF16, .source = DType::kF32};
  testing::Weights weights = testing::RigWeights(options);
  const float large = 70'000.0F;
  std::memcpy(weights.bytes(testing::IndexOf(weights, "model.norm.weight")).data() + 4, &large, sizeof(large));
  for (const bool direct : {false, true}) {
    Rig rig(options, {}, &weights);
    const std::vector<Piece> pieces = rig.Pieces();
    ReloadPipeline pipeline(rig.parts(), direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
    const Piece norm = rig.Whole("model.norm.weight");
    EXPECT_THAT(ErrorOf([&] { pipeline.Accept(norm, rig.ViewOf(norm)); }), HasSubstr("'model.norm.weight'"));
  }
}

// The largest magnitude of an f64 tensor is told as an f32, which holds no more than this.
TEST(Pipeline, RefusesADoubleThatNoFloatCanHoldByEitherWay) {
  const RigOptions options{.dtype = DType::kF32, .source = DType::kF64};
  testing::Weights weights = testing::RigWeights(options);
  const double large = 1e39;
  std::memcpy(weights.bytes(testing::IndexOf(weights, "model.norm.weight")).data() + 8, &large, sizeof(large));
  for (const bool direct : {false, true}) {
    Rig rig(options, {}, &weights);
    const std::vector<Piece> pieces = rig.Pieces();
    ReloadPipeline pipeline(rig.parts(), direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
    const Piece norm = rig.Whole("model.norm.weight");
    EXPECT_THAT(ErrorOf([&] { pipeline.Accept(norm, rig.ViewOf(norm)); }), HasSubstr("'model.norm.weight'"));
  }
}

TEST(Pipeline, HitsTheFailpointOfADirectLayerOnceAtItsBeginning) {
  Rig rig({.failpoints = "quantize=throw@1"});
  const std::vector<Piece> pieces = rig.Pieces(4000);
  ReloadPipeline pipeline(rig.parts(), pieces);
  std::vector<std::uint32_t> begun;
  const std::string error = ErrorOf([&] {
    for (const Piece& piece : pieces) {
      const std::uint32_t layer = rig.plan.parameters()[rig.plan.placements()[piece.placement].parameter].layer;
      if (begun.empty() || begun.back() != layer) begun.push_back(layer);
      pipeline.Accept(piece, rig.ViewOf(piece));
    }
  });
  EXPECT_THAT(error, HasSubstr("quantize"));
  EXPECT_EQ(begun.size(), 2U);
  EXPECT_EQ(pipeline.layers_done(), 1U);
}

}  // namespace
}  // namespace layercast
