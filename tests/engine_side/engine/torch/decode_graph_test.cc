// On the CPU, where a decode graph runs its step's operations one by one: the operations themselves, and what does not
// move. tests/engine_side/engine/built_in/test_forward.py holds them against transformers, decode_graph_cuda_test.cc
// replays them.
#include "engine_side/engine/torch/decode_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine_side/engine/built_in/rope.h"
#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "tests/engine_side/engine/torch/decode_rig.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

DecodeGraph GraphOf(const DecodeRig& rig, const std::vector<CapturedBuffer>& buffers) {
  return DecodeGraph(rig.tree(), {}, buffers, MakeRope, DecodeRig::shape());
}

TEST(DecodeGraph, ComputesWhatTheDecoderDoesFromEveryKernelFormat) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "int8_per_channel"}) {
    SCOPED_TRACE(recipe);
    DecodeRig rig(recipe);
    rig.Reload(1);
    DecodeGraph graph = GraphOf(rig, rig.engine().Buffers());
    EXPECT_LT(RelativeDifference(GraphLogits(graph), rig.DecoderLogits()), 1e-5F);
  }
}

TEST(DecodeGraph, ComputesWhatTheDecoderDoesOfRecurrentLayersAndExperts) {
  for (const char* recipe : {"none", "fp8_per_channel"}) {
    SCOPED_TRACE(recipe);
    DecodeRig rig(recipe, "float32", DecodeRig::Model::kHybrid);
    rig.Reload(1);
    DecodeGraph graph = GraphOf(rig, rig.engine().Buffers());
    EXPECT_LT(RelativeDifference(GraphLogits(graph), rig.DecoderLogits()), 1e-5F);
  }
}

TEST(DecodeGraph, RoundsWhereTheDecoderDoes) {
  for (const char* dtype : {"bfloat16", "float16"}) {
    SCOPED_TRACE(dtype);
    DecodeRig rig("none", dtype);
    rig.Reload(1);
    DecodeGraph graph = GraphOf(rig, rig.engine().Buffers());
    // A sum in another order may round the other way: a unit in the last place of an activation, nothing worse.
    EXPECT_LT(RelativeDifference(GraphLogits(graph), rig.DecoderLogits()), 0.02F);
  }
}

TEST(DecodeGraph, ServesNewWeightsAfterAReloadFromTheSameAddresses) {
  for (const char* recipe : {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block"}) {
    SCOPED_TRACE(recipe);
    DecodeRig rig(recipe);
    rig.Reload(1);
    const std::vector<CapturedBuffer> buffers = rig.engine().Buffers();
    DecodeGraph graph = GraphOf(rig, buffers);
    const std::vector<float> before = GraphLogits(graph);
    rig.Reload(2);
    EXPECT_EQ(rig.engine().Buffers(), buffers);
    const std::vector<float> after = GraphLogits(graph);
    EXPECT_LT(RelativeDifference(after, rig.DecoderLogits()), 1e-5F);
    EXPECT_GT(RelativeDifference(after, before), 0.1F);
  }
}

TEST(DecodeGraph, ASlotForgetsTheSequenceThatItHeld) {
  for (const DecodeRig::Model model : {DecodeRig::Model::kDense, DecodeRig::Model::kHybrid}) {
    DecodeRig rig("none", "float32", model);
    rig.Reload(1);
    DecodeGraph graph = GraphOf(rig, rig.engine().Buffers());
    const std::vector<float> first = GraphLogits(graph);
    // Keys, values and states of a version that is not a number; the first at positions that none has overwritten
    // since.
    const std::vector<CapturedBuffer> buffers = rig.engine().Buffers();
    const auto embedding = std::ranges::find(buffers, "model.embed_tokens.weight", &CapturedBuffer::name);
    std::fill_n(reinterpret_cast<float*>(embedding->address), NumElements(embedding->shape), std::nanf(""));
    for (std::int64_t position = 0; position < DecodeRig::shape().max_tokens; ++position) {
      for (std::int64_t slot = 0; slot < DecodeRig::shape().slots; ++slot) {
        const DecodeRow row{.slot = slot, .position = position, .token = 7};
        EXPECT_TRUE(std::isnan(graph.Run({&row, 1}).values[0]));
      }
    }
    rig.Reload(1);
    EXPECT_EQ(GraphLogits(graph), first);
  }
}

TEST(DecodeGraph, RefusesRowsThatItHasNoPlaceFor) {
  DecodeRig rig("none");
  DecodeGraph graph = GraphOf(rig, rig.engine().Buffers());
  const auto error = [&](const DecodeRow& row) {
    return ErrorOf([&] { (void)graph.Run({&row, 1}); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_EQ(error({.token = 50}), "row 0 of a decode step: token 50, expected one below 50");
  EXPECT_EQ(error({.token = -1}), "row 0 of a decode step: token -1, expected one below 50");
  EXPECT_EQ(error({.position = 16}), "row 0 of a decode step: position 16, expected one below 16");
  EXPECT_EQ(error({.slot = 3}), "row 0 of a decode step: slot 3, expected one below 3");
  const std::vector<DecodeRow> many(6);
  EXPECT_EQ(ErrorOf([&] { (void)graph.Run(many); }, ErrorCode::kInvalidArgument), "a decode step has 5 rows, got 6");
}

TEST(DecodeGraph, RefusesTwoTokensOfOneSequenceAtOnceWhereLayersAreRecurrent) {
  DecodeRig rig("none", "float32", DecodeRig::Model::kHybrid);
  DecodeGraph graph = GraphOf(rig, rig.engine().Buffers());
  EXPECT_TRUE(graph.is_recurrent());
  const std::vector<DecodeRow> rows = {{.slot = 1}, {.slot = 0}, {.slot = 1, .position = 1}};
  EXPECT_EQ(ErrorOf([&] { (void)graph.Run(rows); }, ErrorCode::kInvalidArgument),
            "row 2 of a decode step: slot 1 again, expected one row of each slot where layers are recurrent");
  EXPECT_NO_THROW((void)graph.Run(std::span(rows).first(2)));
}

TEST(DecodeGraph, RefusesBuffersThatTheStepWouldNotRead) {
  DecodeRig rig("none");
  std::vector<CapturedBuffer> buffers = rig.engine().Buffers();
  const auto error = [&](const ParallelConfig& parallel) {
    return ErrorOf([&] { DecodeGraph(rig.tree(), parallel, buffers, MakeRope, DecodeRig::shape()); },
                   ErrorCode::kUnsupported);
  };
  EXPECT_EQ(error({.tp_size = 2}), "the decode step in tensors computes whole models on one rank, got tp_size 2");
  EXPECT_EQ(error({.pp_size = 3}), "the decode step in tensors computes whole models on one rank, got pp_size 3");
  buffers.back().device = {Device::Kind::kCuda, 1};
  EXPECT_EQ(error({}), "the forward pass on CPU cannot read '" + buffers.back().name + "', which is on GPU 1");
}

}  // namespace
}  // namespace layercast::testing
