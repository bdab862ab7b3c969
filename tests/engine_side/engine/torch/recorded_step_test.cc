// The decode step as a CUDA graph would hold it, simulated on the CPU: recorded once, then replayed while adapter
// slots, their numbers, rows and weights change. And the simulation itself: what it refuses, as a capture does.
#include "tests/engine_side/engine/torch/recorded_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/torch/decode_step.h"
#include "tests/engine_side/engine/torch/decode_rig.h"

namespace layercast::testing {
namespace {

struct Refused {
  std::string name, said;
  std::function<void(at::Tensor& x)> queue;
};

class RefusedSteps : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedSteps, AreNamed) {
  at::Tensor x = at::ones({4});
  const auto record = [&] { RecordedStep([&] { GetParam().queue(x); }); };
  EXPECT_THAT(record, ::testing::ThrowsMessage<std::runtime_error>(::testing::HasSubstr(GetParam().said)));
}

INSTANTIATE_TEST_SUITE_P(
    ByACapture, RefusedSteps,
    ::testing::Values(
        Refused{"AHostRead", "aten::_local_scalar_dense", [](at::Tensor& x) { x.add_(x[1].item<float>()); }},
        Refused{"ABranch", "aten::_local_scalar_dense",
                [](at::Tensor& x) { x.add_((x > 0).all().item<bool>() ? 1 : 0); }},
        Refused{"Places", "aten::nonzero", [](at::Tensor& x) { x.add_(at::nonzero(x).sum()); }},
        Refused{"ASelection", "aten::masked_select", [](at::Tensor& x) { x.add_(at::masked_select(x, x > 0).sum()); }},
        Refused{"AMask", "aten::index", [](at::Tensor& x) { x.add_(x.index({x > 0}).sum()); }},
        Refused{"AListOfTheHosts", "reads memory that the host has just filled",
                [](at::Tensor& x) { x.add_(at::tensor({1.0F, 2.0F, 3.0F, 4.0F})); }},
        Refused{"MemoryOfTheHosts", "reads memory that the host has just filled",
                [](at::Tensor& x) {
                  std::vector<float> values(4, 2.0F);
                  x.add_(at::from_blob(values.data(), {4}, at::kFloat));
                }}),
    [](const auto& refused) { return refused.param.name; });

TEST(RecordedStep, ReplaysOnTheSameMemoryWithoutTheHostsCode) {
  at::Tensor x = at::ones({4}), y = at::zeros({4}), places = at::tensor({3, 2, 1, 0});
  int runs = 0;
  const RecordedStep step([&] {
    ++runs;
    const at::Tensor turned = x.index({places}) * 2.0;
    y.copy_(turned.view({2, 2}).t().reshape({4}) + static_cast<double>(runs));
  });
  EXPECT_EQ(runs, 2);
  EXPECT_GT(step.operations(), 4U);
  x.copy_(at::tensor({1.0F, 2.0F, 3.0F, 4.0F}));
  step.Replay();
  EXPECT_TRUE(y.equal(at::tensor({10.0F, 6.0F, 8.0F, 4.0F})));  // with the 2 of the run that was recorded
  places.copy_(at::tensor({0, 0, 1, 1}));
  step.Replay();
  EXPECT_TRUE(y.equal(at::tensor({4.0F, 6.0F, 4.0F, 6.0F})));
  EXPECT_EQ(runs, 2);
}

struct Recorded {
  DecodeRig::Model model;
  const char* recipe;
  const char* dtype;
};

class RecordedDecodeStep : public ::testing::TestWithParam<Recorded> {};

TEST_P(RecordedDecodeStep, ServesWhateverIsInTheSlotsThatRowsNameByReplayAlone) {
  DecodeRig rig(GetParam().recipe, GetParam().dtype, GetParam().model);
  rig.Reload(1);
  const std::vector<CapturedBuffer> buffers = rig.engine().Buffers();
  const AdapterSlots& slots = rig.adapters().slots();
  DecodeStep step(rig.tree(), {}, buffers, MakeRope, DecodeRig::shape(), &slots);
  DecodeGraph eager(rig.tree(), {}, buffers, MakeRope, DecodeRig::shape(), DecodeGraph::Mode::kEager, &slots);
  const RecordedStep recorded([&] { step.Queue(); });
  const std::uint64_t queued = step.times_queued();
  const auto replayed = [&](const std::vector<std::int32_t>& of_sequences) {
    const auto run = [&](std::span<const DecodeRow> rows) {
      step.Put(rows);
      recorded.Replay();
      return step.Read(rows.size());
    };
    return LogitsOfSteps(run, step.is_recurrent(), of_sequences);
  };

  std::vector<float> before = replayed({-1, -1, -1});
  EXPECT_EQ(before, GraphLogits(eager));
  for (const std::size_t seed : {2U, 3U, 4U}) {
    if (seed == 4) rig.Reload(seed);
    rig.adapters().FillWithNaN(seed % 3);
    rig.adapters().slots().Clear(seed % 3);
    rig.adapters().Fill((seed + 1) % 3, {.seed = seed, .rank = static_cast<std::int32_t>(seed)});
    rig.adapters().Fill((seed + 2) % 3, {.seed = seed + 7, .rank = 6, .scale = 1.2F});
    const auto slot = [&](std::size_t of) { return static_cast<std::int32_t>((seed + of) % 3); };
    for (const std::vector<std::int32_t>& of_sequences :
         {std::vector<std::int32_t>{slot(1), -1, slot(2)}, {slot(2), slot(1), slot(2)}, {-1, slot(0), -1}}) {
      const std::vector<float> got = replayed(of_sequences);
      EXPECT_EQ(got, GraphLogits(eager, of_sequences));
      EXPECT_NE(got, before);
      before = got;
    }
  }
  EXPECT_EQ(step.times_queued(), queued);
}

TEST(DecodeStep, CopiesTheScalesOfSlotsOnlyWhereTheyHaveChanged) {
  DecodeRig rig("none");
  DecodeStep step(rig.tree(), {}, rig.engine().Buffers(), MakeRope, DecodeRig::shape(), &rig.adapters().slots());
  const auto operations = [&](const std::function<void()>& before) {
    return RecordedStep([&] {
             before();
             step.Put({});
           })
        .operations();
  };
  rig.adapters().Fill(1, {.seed = 1});
  const std::size_t inputs_alone = operations([] {});
  float scale = 0.5F;
  EXPECT_EQ(operations([&] { rig.adapters().Fill(2, {.seed = 2, .scale = scale += 0.25F}); }), inputs_alone + 1);
  EXPECT_EQ(operations([&] { rig.adapters().Fill(2, {.seed = 3, .scale = scale}); }), inputs_alone);
  bool full = true;
  EXPECT_EQ(operations([&] { full = !full, full ? rig.adapters().slots().Clear(2) : rig.adapters().Fill(2, {}); }),
            inputs_alone + 1);
}

INSTANTIATE_TEST_SUITE_P(OfModels, RecordedDecodeStep,
                         ::testing::Values(Recorded{DecodeRig::Model::kDense, "none", "bfloat16"},
                                           Recorded{DecodeRig::Model::kDense, "fp8_per_channel", "float32"},
                                           Recorded{DecodeRig::Model::kHybrid, "none", "float32"},
                                           Recorded{DecodeRig::Model::kHybrid, "fp8_per_channel", "bfloat16"}));

}  // namespace
}  // namespace layercast::testing
