// The decode graph with adapters, on the CPU: its operations against the decoder's, and slots that change between runs.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/torch/decode_graph.h"
#include "tests/engine_side/engine/torch/decode_rig.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

DecodeGraph GraphWithAdapters(DecodeRig& rig) {
  return DecodeGraph(rig.tree(), {}, rig.engine().Buffers(), MakeRope, DecodeRig::shape(), DecodeGraph::Mode::kReplay,
                     &rig.adapters().slots());
}

TEST(AdaptedDecodeGraph, ComputesWhatTheDecoderDoesWithSlotsThatChangeBetweenRuns) {
  for (const DecodeRig::Model model : {DecodeRig::Model::kDense, DecodeRig::Model::kHybrid}) {
    for (const char* recipe : {"none", "fp8_per_channel"}) {
      DecodeRig rig(recipe, "float32", model);
      rig.Reload(1);
      DecodeGraph graph = GraphWithAdapters(rig);
      const std::vector<float> base = GraphLogits(graph);
      std::vector<float> before = base;
      for (const std::size_t seed : {1U, 2U, 3U}) {
        rig.adapters().FillWithNaN(0);
        rig.adapters().Fill(1, {.seed = seed, .rank = static_cast<std::int32_t>(2 * seed)});
        rig.adapters().Fill(2, {.seed = seed + 7, .rank = 3, .scale = 1.2F});
        const std::vector<float> got = GraphLogits(graph, {1, -1, 2});
        EXPECT_LT(RelativeDifference(got, rig.DecoderLogits({1, -1, 2})), 1e-5F);
        EXPECT_GT(RelativeDifference(got, before), 1e-2F);
        before = got;
      }
      EXPECT_EQ(GraphLogits(graph), base);
      rig.adapters().slots().Clear(1);
      rig.adapters().slots().Clear(2);
      EXPECT_EQ(GraphLogits(graph, {1, 0, 2}), base);
    }
  }
}

TEST(AdaptedDecodeGraph, RoundsWhereTheDecoderDoes) {
  for (const char* dtype : {"bfloat16", "float16"}) {
    SCOPED_TRACE(dtype);
    DecodeRig rig("none", dtype);
    rig.Reload(1);
    rig.adapters().Fill(0, {.seed = 1, .rank = 6});
    DecodeGraph graph = GraphWithAdapters(rig);
    EXPECT_LT(RelativeDifference(GraphLogits(graph, {0, 0, -1}), rig.DecoderLogits({0, 0, -1})), 0.02F);
  }
}

TEST(AdaptedDecodeGraph, TokensOfTheBaseGetTheBitsOfAGraphWithoutSlots) {
  for (const DecodeRig::Model model : {DecodeRig::Model::kDense, DecodeRig::Model::kHybrid}) {
    DecodeRig rig("none", "bfloat16", model);
    rig.Reload(1);
    DecodeGraph without(rig.tree(), {}, rig.engine().Buffers(), MakeRope, DecodeRig::shape());
    DecodeGraph graph = GraphWithAdapters(rig);
    rig.adapters().FillWithNaN(0);
    rig.adapters().Fill(1, {.rank = 6});
    const std::vector<float> expected = GraphLogits(without), got = GraphLogits(graph, {1, -1, 1});
    const std::size_t vocabulary = without.vocab_size(), first = DecodeRig::sequences()[0].size() * vocabulary;
    const std::size_t count = DecodeRig::sequences()[1].size() * vocabulary;
    EXPECT_EQ(std::memcmp(got.data() + first, expected.data() + first, count * sizeof(float)), 0);
    EXPECT_NE(std::memcmp(got.data(), expected.data(), first * sizeof(float)), 0);
  }
}

TEST(AdaptedDecodeGraph, RefusesASlotThatIsNotThere) {
  DecodeRig rig("none");
  DecodeGraph graph = GraphWithAdapters(rig);
  DecodeGraph without(rig.tree(), {}, rig.engine().Buffers(), MakeRope, DecodeRig::shape());
  const auto error = [](DecodeGraph& of, std::int32_t adapter) {
    const DecodeRow row{.adapter = adapter};
    return ErrorOf([&] { (void)of.Run({&row, 1}); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_EQ(error(graph, 3), "row 0 of a decode step: adapter slot 3, expected one below 3");
  EXPECT_EQ(error(graph, -2), "row 0 of a decode step: adapter slot -2, expected one below 3");
  EXPECT_EQ(error(without, 0), "row 0 of a decode step: adapter slot 0, expected one below 0");
}

}  // namespace
}  // namespace layercast::testing
