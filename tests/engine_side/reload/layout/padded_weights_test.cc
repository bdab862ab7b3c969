// Engines whose kernels want padded, transposed or column-major weights: their memory, element by element, whatever the
// recipe and the commit policy.
#include "layercast/weight_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/layout/strided.h"
#include "tests/support/reload/laid_out.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::EagerSource;
using testing::ErrorOf;
using testing::ExpertForm;
using ::testing::HasSubstr;
using testing::LaidOut;
using testing::ReceiverRig;
using testing::RigModel;
using testing::RigOptions;
using testing::ServedBytes;
using testing::Weights;

constexpr std::byte kUntouched{0x5C};

// The rig's weights are 128 and 256 wide: nothing that is a multiple of 96.
constexpr std::pair<const char*, WeightLayout> kLayouts[] = {
    {"rows padded", {.row_alignment = 96}},
    {"padded", {.row_alignment = 96, .column_alignment = 96}},
    {"column-major", {.column_major = true}},
    {"transposed", {.transposed = true}},
    {"as CUTLASS wants it", {.transposed = true, .column_major = true}},
    {"padded, column-major", {.row_alignment = 96, .column_alignment = 96, .column_major = true}},
    {"padded, as CUTLASS wants it", {96, 96, true, true}},
};

struct LayoutRig {
  LayoutRig(RigOptions given, const WeightLayout& layout, CommitPolicy policy = CommitPolicy::kStaged)
      : options(std::move(given)) {
    for (LaidOut& one : testing::LaidOutBuffers(*RigModel(options), *MakeRecipe(options.recipe), layout)) {
      memory.emplace_back(ExtentBytes(one.buffer), kUntouched);
      one.buffer.address = memory.back().data();
      buffers.push_back(std::move(one));
    }
    ReceiverOptions receiver_options;
    receiver_options.threads = 1;
    receiver_options.commit = policy;
    QuantizationConfig quantization{.recipe = options.recipe, .layout = layout};
    receiver =
        std::make_unique<Receiver>(RigModel(options), options.parallel, quantization,
                                   CapturedBuffers::Adopt(Table(), [this] { return Table(); }), receiver_options);
  }

  std::vector<CapturedBuffer> Table() const {
    std::vector<CapturedBuffer> table;
    for (const LaidOut& one : buffers) table.push_back(one.buffer);
    return table;
  }
  Weights Version(std::uint32_t seed) const { return RigWeights(options, seed); }

  // The memory of every buffer against what it must hold.
  void ExpectServes(const ServedBytes& expected) const {
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const std::string& name = buffers[i].buffer.name;
      ASSERT_EQ(memory[i], buffers[i].Memory(expected.at(name), memory[i].size(), kUntouched)) << name;
      ASSERT_EQ(receiver->captured().Read(*receiver->captured().Find(name)), expected.at(name)) << name;
    }
  }

  RigOptions options;
  std::vector<LaidOut> buffers;
  std::vector<std::vector<std::byte>> memory;
  std::unique_ptr<Receiver> receiver;
};

class WeightLayouts : public ::testing::TestWithParam<std::tuple<std::string, CommitPolicy>> {};

TEST_P(WeightLayouts, HoldTheSlowReferencesBytesAndZerosBesideThem) {
  const auto& [recipe, policy] = GetParam();
  for (const RigOptions& options : {RigOptions{.recipe = recipe, .parallel = {1, 2}},
                                    RigOptions{.recipe = recipe, .experts = ExpertForm::kFused}}) {
    const Weights versions[] = {RigWeights(options, 1), RigWeights(options, 2)};
    const ServedBytes expected[] = {ServedSlowly(options, versions[0]), ServedSlowly(options, versions[1])};
    ReceiverRig plain(options);
    const Digest digest = plain.receiver->ReloadWeights(EagerSource(versions[1])).served_digest;
    for (const auto& [name, layout] : kLayouts) {
      SCOPED_TRACE(name);
      LayoutRig rig(options, layout, policy);
      rig.receiver->ReloadWeights(EagerSource(versions[0]));
      rig.ExpectServes(expected[0]);
      EXPECT_EQ(rig.receiver->ReloadWeights(EagerSource(versions[1])).served_digest, digest);
      rig.ExpectServes(expected[1]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Staged, WeightLayouts,
                         ::testing::Combine(::testing::ValuesIn(testing::kUnderThreadSanitizer
                                                                    ? std::vector<std::string>{"fp8_per_channel"}
                                                                    : KnownRecipes()),
                                            ::testing::Values(CommitPolicy::kStaged)));
INSTANTIATE_TEST_SUITE_P(InPlace, WeightLayouts,
                         ::testing::Combine(::testing::ValuesIn(testing::kUnderSanitizer
                                                                    ? std::vector<std::string>{"fp8_per_channel"}
                                                                    : KnownRecipes()),
                                            ::testing::Values(CommitPolicy::kUndo, CommitPolicy::kInPlace)));

TEST(WeightLayout, IsKeptWhereAVersionIsTakenBack) {
  LayoutRig rig({.recipe = "fp8_per_channel"}, {96, 96, true, true}, CommitPolicy::kUndo);
  const Weights first = rig.Version(1);
  const Weights second = rig.Version(2);
  rig.receiver->ReloadWeights(EagerSource(first));
  rig.receiver->Stage(EagerSource(second));
  rig.receiver->Commit();
  rig.ExpectServes(ServedSlowly(rig.options, second));
  EXPECT_TRUE(rig.receiver->RollBack());
  rig.ExpectServes(ServedSlowly(rig.options, first));
}

// Whatever was written there meanwhile.
TEST(WeightLayout, PaddingIsZeroAfterEveryCommit) {
  LayoutRig rig({.recipe = "mxfp4"}, {.row_alignment = 96, .column_alignment = 96});
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  for (std::vector<std::byte>& memory : rig.memory) std::ranges::fill(memory, kUntouched);
  rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
  rig.ExpectServes(ServedSlowly(rig.options, rig.Version(2)));
}

TEST(WeightLayout, AMovedBufferIsNoticed) {
  LayoutRig rig({.recipe = "fp8_per_tensor"}, {.row_alignment = 96});
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  rig.buffers[2].buffer.shape[0] += 96;
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }),
              AllOf(HasSubstr("captured buffers must never move"), HasSubstr(rig.buffers[2].buffer.name)));
}

TEST(WeightLayout, BuffersThatDoNotHaveItAreNamedWithBothShapes) {
  const RigOptions options{.recipe = "fp8_per_channel"};
  const auto error = [&](const WeightLayout& has, const WeightLayout& wants) {
    LayoutRig rig(options, has);
    const QuantizationConfig quantization{.recipe = options.recipe, .layout = wants};
    return ErrorOf([&] { Receiver(RigModel(options), {}, quantization, CapturedBuffers::Adopt(rig.Table())); });
  };
  const std::string gate_up = "captured buffer 'model.layers.0.mlp.gate_up_proj.weight': expected ";
  EXPECT_THAT(error({}, {.row_alignment = 96, .column_alignment = 96}),
              AllOf(HasSubstr(gate_up + "[576, 192] for [rows, columns] of [512, 128], got [512, 128] with strides "
                                        "[128, 1]"),
                    HasSubstr("gate_up_proj.weight_scale': expected [576, 1] for [rows, columns] of [512, 1], got "
                              "[512, 1]")));
  EXPECT_THAT(error({}, {.transposed = true}),
              HasSubstr(gate_up + "[128, 512] for [rows, columns] of [512, 128], got [512, 128]"));
  EXPECT_THAT(error({.transposed = true}, {.transposed = true, .column_major = true}),
              HasSubstr(gate_up + "[128, 512] with elements of a column one behind the other for [rows, columns] of "
                                  "[512, 128], got [128, 512] with strides [512, 1]"));
  EXPECT_THAT(error({.row_alignment = 96}, {.row_alignment = 64, .column_alignment = 0}),
              HasSubstr("expected alignments of at least 1, got 0"));
}

}  // namespace
}  // namespace layercast
