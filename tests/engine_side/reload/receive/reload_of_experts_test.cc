// Experts through the pipeline and the receiver: every recipe takes each expert alone, whatever form the checkpoint
// has, and other ranks' experts cost a rank nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "engine_side/quant/recipes/recipe_table.h"
#include "engine_side/reload/pipeline/pipeline.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::ErrorOf;
using testing::ExpertForm;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Rig;
using testing::RigOptions;
using testing::ServedBytes;
using testing::ServedSlowly;
using testing::Weights;

constexpr ParallelConfig kAlone{};
constexpr ParallelConfig kSecondOfTwo{.tp_rank = 1, .tp_size = 2};
constexpr ParallelConfig kThirdOfFour{.tp_rank = 2, .tp_size = 4};
constexpr ParallelConfig kNeighbours{.tp_rank = 1, .tp_size = 2, .ep_rank = 1, .ep_size = 2};
constexpr ParallelConfig kEverySecond{
    .tp_rank = 0, .tp_size = 2, .ep_rank = 0, .ep_size = 2, .expert_placement = ExpertPlacement::kRoundRobin};
constexpr ParallelConfig kWithoutAny{.tp_rank = 7, .tp_size = 8, .ep_rank = 7, .ep_size = 8};

struct Way {
  std::uint64_t chunk_bytes = 4U << 20;
  bool direct = false;
  int shuffle_seed = -1;  // negative: in order
};

// Made once: that takes longer than to load them.
const Weights& WeightsOf(ExpertForm form) {
  static std::map<ExpertForm, Weights> made;
  const auto [found, is_new] = made.try_emplace(form);
  if (is_new) found->second = testing::RigWeights({.experts = form});
  return found->second;
}

// What this rank serves, whatever the form: that of experts one by one.
const ServedBytes& ServedSlowlyOnce(const std::string& recipe, const ParallelConfig& parallel) {
  static std::map<std::tuple<std::string, int, int, int, ExpertPlacement>, ServedBytes> made;
  const auto [found, is_new] =
      made.try_emplace({recipe, parallel.tp_rank, parallel.tp_size, parallel.ep_size, parallel.expert_placement});
  const RigOptions options{.recipe = recipe, .parallel = parallel, .experts = ExpertForm::kPerExpert};
  if (is_new) found->second = ServedSlowly(options, WeightsOf(*options.experts));
  return found->second;
}

ServedBytes Load(const RigOptions& options, const Way& way) {
  Rig rig(options, std::byte{0xA5}, &WeightsOf(*options.experts));
  std::vector<Piece> pieces = rig.Pieces(way.chunk_bytes);
  ReloadPipeline pipeline(rig.parts(), way.direct ? std::span<const Piece>(pieces) : std::span<const Piece>());
  rig.GiveAmax(pipeline.amax());
  if (way.shuffle_seed >= 0) {
    std::ranges::shuffle(pieces, std::mt19937(static_cast<std::uint32_t>(way.shuffle_seed)));
  }
  for (const Piece& piece : pieces) pipeline.Accept(piece, rig.ViewOf(piece));
  pipeline.Finish();
  EXPECT_EQ(rig.memory.current_bytes(), 0U);
  return rig.Staged();
}

class ExpertsOfEveryRecipe : public ::testing::TestWithParam<std::tuple<std::string, ExpertForm, ParallelConfig>> {};

TEST_P(ExpertsOfEveryRecipe, GiveTheBytesOfTheSlowReferenceByAnyWayAndInAnyForm) {
  const auto& [recipe, form, parallel] = GetParam();
  const RigOptions options{.recipe = recipe, .parallel = parallel, .experts = form};
  const ServedBytes& expected = ServedSlowlyOnce(recipe, parallel);
  EXPECT_THAT(Differences(Load(options, {}), expected), IsEmpty()) << "five stages";
  EXPECT_THAT(Differences(Load(options, {.direct = true}), expected), IsEmpty()) << "direct";
  EXPECT_THAT(Differences(Load(options, {.chunk_bytes = 700, .shuffle_seed = 1}), expected), IsEmpty()) << "crumbs";
  EXPECT_THAT(Differences(Load(options, {.chunk_bytes = 40'000, .direct = true, .shuffle_seed = 2}), expected),
              IsEmpty())
      << "direct, whole blocks of rows, in disorder";
}

// Under ThreadSanitizer each recipe with experts split and whole, one by one and stacked.
const std::vector<ExpertForm> kForms =
    testing::kUnderThreadSanitizer
        ? std::vector{ExpertForm::kPerExpert, ExpertForm::kStacked}
        : std::vector{ExpertForm::kPerExpert, ExpertForm::kFused, ExpertForm::kStacked, ExpertForm::kTransposed};
const std::vector<ParallelConfig> kRanks =
    testing::kUnderThreadSanitizer
        ? std::vector{kSecondOfTwo, kEverySecond}
        : std::vector{kAlone, kSecondOfTwo, kThirdOfFour, kNeighbours, kEverySecond, kWithoutAny};

INSTANTIATE_TEST_SUITE_P(Ranks, ExpertsOfEveryRecipe,
                         ::testing::Combine(::testing::ValuesIn(KnownRecipes()), ::testing::ValuesIn(kForms),
                                            ::testing::ValuesIn(kRanks)));

INSTANTIATE_TEST_SUITE_P(OfColumnsThatAlternate, ExpertsOfEveryRecipe,
                         ::testing::Combine(::testing::ValuesIn(KnownRecipes()),
                                            ::testing::Values(ExpertForm::kInterleaved),
                                            ::testing::Values(kSecondOfTwo, kEverySecond)));

TEST(Experts, HaveTheKernelTensorsThatEnginesHave) {
  const auto shapes_of = [](const char* recipe) {
    Rig rig({.recipe = recipe, .parallel = kSecondOfTwo, .experts = ExpertForm::kStacked});
    std::map<std::string, Shape> shapes;
    for (const KernelTensor& tensor : rig.layout.tensors()) shapes[tensor.spec.name] = tensor.spec.shape;
    return shapes;
  };
  EXPECT_EQ(shapes_of("none").at("mlp.experts.w13_weight"), (Shape{5, 256, 128}));
  EXPECT_EQ(shapes_of("fp8_per_tensor").at("mlp.experts.w13_weight_scale"), (Shape{5}));
  EXPECT_EQ(shapes_of("fp8_per_tensor").at("mlp.experts.w2_weight_scale"), (Shape{5}));
  EXPECT_EQ(shapes_of("fp8_per_channel").at("mlp.experts.w13_weight_scale"), (Shape{5, 256, 1}));
  EXPECT_EQ(shapes_of("fp8_per_block").at("mlp.experts.w13_weight_scale_inv"), (Shape{5, 2, 1}));
  EXPECT_EQ(shapes_of("fp8_per_block").at("mlp.experts.w2_weight_scale_inv"), (Shape{5, 1, 1}));
  EXPECT_EQ(shapes_of("mxfp8").at("mlp.experts.w2_weight_scale"), (Shape{5, 128, 4}));
  EXPECT_EQ(shapes_of("nvfp4").at("mlp.experts.w13_weight"), (Shape{5, 256, 64}));
  EXPECT_EQ(shapes_of("nvfp4").at("mlp.experts.w13_weight_scale"), (Shape{5, 256, 8}));
  EXPECT_EQ(shapes_of("nvfp4").at("mlp.experts.w13_weight_scale_2"), (Shape{5}));
  EXPECT_FALSE(shapes_of("fp8_per_block").contains("mlp.gate.weight_scale_inv"));
}

TEST(Experts, OfOtherRanksAreNeitherSentNorHeld) {
  constexpr std::int64_t kExpertBytes = 3 * 256 * 128 * 2;
  constexpr std::int64_t kBiasBytes = (2 * 256 + 128) * 2;
  for (const ExpertForm form : testing::kExpertForms) {
    for (int rank = 0; rank < 2; ++rank) {
      const ParallelConfig parallel{.tp_rank = rank, .tp_size = 2, .ep_rank = rank, .ep_size = 2};
      Rig rig({.parallel = parallel, .experts = form});
      const std::int64_t experts = rank == 0 ? 3 : 2;
      std::int64_t sent = 0;
      const PlannedSchedule planned = MakeSchedule(rig.plan, rig.manifest, {});
      for (const Region& region : planned.schedule.regions()) {
        const std::string& name = rig.manifest.entry(region.tensor).spec.name;
        if (name.find("experts") != std::string::npos) sent += static_cast<std::int64_t>(region.num_bytes());
      }
      EXPECT_EQ(sent, experts * (kExpertBytes + kBiasBytes));

      ReloadPipeline pipeline(rig.parts(), {});
      for (const Piece& piece : planned.pieces) pipeline.Accept(piece, rig.ViewOf(piece));
      pipeline.Finish();
      EXPECT_EQ(rig.memory.peak_bytes(), static_cast<std::uint64_t>(experts * (kExpertBytes + kBiasBytes)));
    }
  }
}

TEST(Experts, GoDirectOneByOneAndNothingIsHeldThen) {
  for (const std::string& recipe : KnownRecipes()) {
    for (const ExpertForm form : testing::kExpertForms) {
      Rig rig({.recipe = recipe, .parallel = kSecondOfTwo, .experts = form});
      const std::vector<Piece> pieces = rig.Pieces();
      ReloadPipeline pipeline(rig.parts(), pieces);
      EXPECT_TRUE(pipeline.IsDirect(rig.LayerOf("mlp.experts")));
      rig.GiveAmax(pipeline.amax());
      for (const Piece& piece : pieces) pipeline.Accept(piece, rig.ViewOf(piece));
      pipeline.Finish();
      EXPECT_EQ(rig.memory.allocations(), 0U);
    }
  }
}

TEST(Experts, ThatHoldANaNAreNamed) {
  RigOptions options{.recipe = "fp8_per_tensor", .experts = ExpertForm::kPerExpert};
  testing::Weights weights = testing::RigWeights(options);
  const std::uint16_t nan = 0x7FC0;
  std::memcpy(weights.bytes(testing::IndexOf(weights, "mlp.experts.3.up_proj.weight")).data() + 2 * (7 * 128 + 5), &nan,
              sizeof(nan));
  Rig rig(options);
  rig.weights = weights;  // behind the manifest's back: publishers refuse NaN
  ReloadPipeline pipeline(rig.parts(), {});
  EXPECT_THAT(ErrorOf([&] {
                for (const Piece& piece : rig.Pieces()) pipeline.Accept(piece, rig.ViewOf(piece));
              }),
              HasSubstr("layer mlp.experts: 'mlp.experts.3.up_proj.weight': expected finite values, got NaN at row 7, "
                        "column 5"));
}

TEST(Experts, OfATrainersStackedTensorsAndOfFilesAreTheSameVersionUnderAnyCommitPolicy) {
  for (const char* recipe : {"fp8_per_tensor", "fp8_per_channel"}) {
    for (const ParallelConfig& parallel : {kAlone, kThirdOfFour, kEverySecond}) {
      testing::ReceiverRig files({.recipe = recipe, .parallel = parallel, .experts = ExpertForm::kMixtral});
      TempFolder folder;
      WriteCheckpoint(folder, files.Version(3));
      files.receiver->ReloadWeights(FromPath(folder.path().string()));
      for (const CommitPolicy commit : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
        testing::ReceiverRig trainer({.recipe = recipe, .parallel = parallel, .experts = ExpertForm::kStacked}, true,
                                     false, commit);
        trainer.receiver->ReloadWeights(LazySource(trainer.Version(3)));
        EXPECT_THAT(Differences(files.engine.Served(), trainer.engine.Served()), IsEmpty());
      }
      EXPECT_THAT(Differences(files.engine.Served(), files.Expected(files.Version(3))), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace layercast
