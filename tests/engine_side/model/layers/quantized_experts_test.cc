// Which experts a quantization_config quantizes, and where their codes and scales go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine_side/model/config/checkpoint_quantization.h"
#include "layercast/error.h"
#include "layercast/model/moe.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Tree;

ExpertOptions FourExperts(std::int64_t intermediate_size) {
  return {.num_experts = 4, .hidden_size = 300, .intermediate_size = intermediate_size};
}

// Whether a recipe applies to the experts of "model.layers.0.mlp", of two ranks the second.
bool QuantizesExperts(std::vector<std::string> ignored) {
  const auto root = std::make_unique<Tree>();
  auto& mlp = root->Add("mlp", std::make_unique<Tree>());
  mlp.Add("experts",
          std::make_unique<FusedMoE>(LayerContext{.parallel = {.ep_rank = 1, .ep_size = 2}}, FourExperts(512)));
  CheckpointQuantization{.method = "fp8", .form = QuantizedForm{}, .ignored = std::move(ignored)}.ApplyTo(*root);
  const auto weights = mlp.children()[0].second->parameters();
  EXPECT_EQ(weights[0].quantize, weights[1].quantize);
  return weights[0].quantize;
}

// Of all four experts, those of other ranks too.
std::vector<std::string> OneByOne(const std::vector<std::string>& projections) {
  std::vector<std::string> modules;
  for (int expert = 0; expert < 4; ++expert) {
    for (const std::string& name : projections) {
      modules.push_back("mlp.experts." + std::to_string(expert) + "." + name);
    }
  }
  return modules;
}

TEST(QuantizedExperts, ExpertsAreIgnoredByTheirNameOrByThatOfEachOfThem) {
  EXPECT_TRUE(QuantizesExperts({"mlp.experts.4.gate_proj", "shared_experts", "re:.*experts\\.gate"}));
  for (const char* entry :
       {"mlp.experts", "*.experts", "*.experts.*", "mlp.experts.*.*_proj", "re:.*experts\\..*_proj"}) {
    EXPECT_FALSE(QuantizesExperts({entry})) << entry;
  }
  for (const std::vector<std::string>& names : std::vector<std::vector<std::string>>{
           {"gate_proj", "up_proj", "down_proj"}, {"w1", "w2", "w3"}, {"gate_up_proj", "down_proj"}}) {
    EXPECT_FALSE(QuantizesExperts(OneByOne(names))) << names[0];
  }
  EXPECT_FALSE(QuantizesExperts({"mlp.experts.0", "mlp.experts.1", "mlp.experts.2", "experts.3"}));
}

TEST(QuantizedExperts, SomeExpertsAloneAreNamedWithOneThatIsNot) {
  const auto message = [](std::vector<std::string> ignored) { return ErrorOf([&] { QuantizesExperts(ignored); }); };
  EXPECT_THAT(message({"mlp.experts.3.up_proj"}),
              HasSubstr("some but not all parts of mlp.experts are quantized: mlp.experts.0.gate_proj is, "
                        "mlp.experts.3.up_proj is ignored"));
  EXPECT_THAT(message({"mlp.experts.0"}), HasSubstr("mlp.experts.1.gate_proj is, mlp.experts.0.gate_proj is ignored"));
  EXPECT_THAT(message({"*.experts.*.w2"}), HasSubstr("mlp.experts.0.w1 is, mlp.experts.0.w2 is ignored"));
}

QuantizedForm FormOf(QuantizedForm::Scales scales) {
  return {.scales = scales,
          .checkpoint_scale = scales == QuantizedForm::Scales::kBlock ? "weight_scale_inv" : "weight_scale"};
}

TEST(QuantizedExperts, ScalesOfExpertsLieWhereTheirBlocksDo) {
  FusedMoE experts({.parallel = {1, 2}}, FourExperts(512));
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kBlock));
  EXPECT_EQ(experts.WhyNotSliced(), "");
  EXPECT_THROW((void)experts.Place("2.w1.weight_scale_inv", "", {"s", DType::kF32, {4, 3}}), Error);
  experts.TakeQuantized(true);
  ASSERT_EQ(experts.parameters().size(), 4U);
  EXPECT_EQ(experts.parameters()[0].spec, (TensorSpec{"w13_weight", DType::kF8E4M3, {4, 512, 300}}));
  EXPECT_EQ(experts.parameters()[1].spec, (TensorSpec{"w13_weight_scale_inv", DType::kF32, {4, 4, 3}}));
  EXPECT_EQ(experts.parameters()[2].spec, (TensorSpec{"w2_weight", DType::kF8E4M3, {4, 300, 256}}));
  EXPECT_EQ(experts.parameters()[3].spec, (TensorSpec{"w2_weight_scale_inv", DType::kF32, {4, 3, 2}}));

  // Expert 2: up's blocks 2 and 3 of 4 are this rank's, and lie behind gate's.
  const PlacedPiece up = experts.Place("2.up_proj.weight_scale_inv", "", {"s", DType::kF32, {4, 3}}).at(0);
  EXPECT_EQ(up.parameter, 1U);
  EXPECT_EQ(up.source, Box::Slice({4, 3}, 0, 2, 2));
  EXPECT_EQ(up.destination, (Box{3, {2, 2, 0}, {1, 2, 3}}));
  const PlacedPiece down = experts.Place("2.down_proj.weight_scale_inv", "", {"s", DType::kF32, {3, 4}}).at(0);
  EXPECT_EQ(down.parameter, 3U);
  EXPECT_EQ(down.source, Box::Slice({3, 4}, 1, 2, 2));
  EXPECT_EQ(down.destination, (Box{3, {2, 0, 0}, {1, 3, 2}}));
  EXPECT_EQ(experts.Place("2.down_proj.weight", "", {"w", DType::kF8E4M3, {300, 512}}).at(0).parameter, 2U);
  EXPECT_EQ(experts.Expected(1, "mlp.experts").at(3).name, "mlp.experts.1.up_proj.weight_scale_inv");
  EXPECT_EQ(experts.Expected(1, "mlp.experts").at(3).destination, (Box{3, {1, 2, 0}, {1, 2, 3}}));

  experts.TakeQuantized(false);
  ASSERT_EQ(experts.parameters().size(), 2U);
  EXPECT_EQ(experts.parameters()[1].spec, (TensorSpec{"w2_weight", DType::kBF16, {4, 300, 256}}));
  EXPECT_TRUE(experts.parameters()[1].quantize);
}

TEST(QuantizedExperts, ScalesOfExpertsRowsGoAlongWithTheRows) {
  FusedMoE experts({.parallel = {1, 2}}, FourExperts(512));
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kChannel));
  EXPECT_EQ(experts.WhyNotSliced(), "");
  experts.TakeQuantized(true);
  const PlacedPiece up = experts.Place("0.w3.weight_scale", "", {"s", DType::kF32, {512, 1}}).at(0);
  EXPECT_EQ(up.source, Box::Slice({512, 1}, 0, 256, 256));
  EXPECT_EQ(up.destination, (Box{3, {0, 256, 0}, {1, 256, 1}}));
  EXPECT_EQ(experts.Place("0.w2.weight_scale", "", {"s", DType::kF32, {300, 1}}).at(0).source, Box::Whole({300, 1}));
}

// As engines have them: [experts].
TEST(QuantizedExperts, AnExpertHasOneScaleOfGateAndUpAndOneOfDown) {
  FusedMoE experts({.parallel = {1, 2, 1, 2}}, FourExperts(512));  // the last two of four
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kTensor));
  experts.TakeQuantized(true);
  EXPECT_EQ(experts.parameters()[1].spec, (TensorSpec{"w13_weight_scale", DType::kF32, {2}}));
  EXPECT_EQ(experts.parameters()[3].spec, (TensorSpec{"w2_weight_scale", DType::kF32, {2}}));
  const auto placed = [&](const char* name, Shape shape) {
    return experts.Place(name, "", {"s", DType::kF32, std::move(shape)});
  };
  for (const char* name : {"3.gate_up_proj.weight_scale", "3.w13.weight_scale", "3.down_proj.weight_scale"}) {
    for (const Shape& shape : {Shape{}, Shape{1}}) {
      const std::vector<PlacedPiece> pieces = placed(name, shape);
      ASSERT_EQ(pieces.size(), 1U);
      EXPECT_EQ(pieces[0].parameter, name[2] == 'd' ? 3U : 1U);
      EXPECT_EQ(pieces[0].source, Box::Whole(shape));
      EXPECT_EQ(pieces[0].destination, Box::Slice({2}, 0, 1, 1));
    }
  }
  EXPECT_EQ(placed("1.down_proj.weight_scale", {}).at(0).source.num_elements(), 0);  // another rank's
  EXPECT_EQ(placed("gate_up_proj_scale", {4}).at(0).source, Box::Slice({4}, 0, 2, 2));
  EXPECT_EQ(placed("w2_weight_scale", {4}).at(0).destination, Box::Whole({2}));
  EXPECT_EQ(experts.Expected(1, "mlp.experts").at(1).name, "mlp.experts.3.gate_up_proj.weight_scale");
  EXPECT_EQ(experts.Expected(1, "mlp.experts").at(1).destination, Box::Slice({2}, 0, 1, 1));
  const auto refusal = [&](const char* name, const Shape& shape) { return ErrorOf([&] { placed(name, shape); }); };
  for (const char* name : {"3.gate_proj.weight_scale", "3.w3.weight_scale"}) {  // one of both, which they bring each
    EXPECT_TRUE(placed(name, {1}).at(0).shared);
    EXPECT_EQ(placed(name, {1}).at(0).destination, Box::Slice({2}, 0, 1, 1));
  }
  EXPECT_FALSE(placed("3.down_proj.weight_scale", {1}).at(0).shared);
  EXPECT_EQ(placed("0.up_proj.weight_scale", {1}).at(0).source.num_elements(), 0);
  EXPECT_EQ(refusal("3.down_proj.weight_scale", {3}), "expected [1] f32, got [3] f32");
  EXPECT_EQ(refusal("gate_up_proj_scale", {}), "expected [4] f32, got [] f32");
}

TEST(QuantizedExperts, ExpertsOfNvfp4HaveOneGlobalScaleOfGateAndUpAndOneOfDown) {
  FusedMoE experts({.parallel = {1, 2}}, FourExperts(64));
  experts.SetQuantization(true, QuantizedForm::Nvfp4());
  experts.TakeQuantized(true);
  ASSERT_EQ(experts.parameters().size(), 6U);
  EXPECT_EQ(experts.parameters()[0].spec, (TensorSpec{"w13_weight", DType::kU8, {4, 64, 150}}));
  EXPECT_EQ(experts.parameters()[2].spec, (TensorSpec{"w13_weight_scale_2", DType::kF32, {4}}));
  EXPECT_EQ(experts.parameters()[4].spec, (TensorSpec{"w2_weight_scale", DType::kF8E4M3, {4, 300, 2}}));
  const auto placed = [&](const char* name, DType dtype, Shape shape) {
    return experts.Place(name, "", {"s", dtype, std::move(shape)}).at(0);
  };
  EXPECT_EQ(placed("3.down_proj.weight", DType::kU8, {300, 32}).source, Box::Slice({300, 32}, 1, 16, 16));
  EXPECT_EQ(placed("3.down_proj.weight_scale", DType::kF8E4M3, {300, 4}).source, Box::Slice({300, 4}, 1, 2, 2));
  EXPECT_EQ(placed("3.down_proj.weight_scale_2", DType::kF32, {}).destination, Box::Slice({4}, 0, 3, 1));
  EXPECT_EQ(placed("1.gate_up_proj.weight_scale_2", DType::kF32, {1}).parameter, 2U);
  EXPECT_EQ(experts.Expected(5, "mlp.experts").at(2).name, "mlp.experts.2.down_proj.weight_scale_2");
  EXPECT_TRUE(placed("1.up_proj.weight_scale_2", DType::kF32, {}).shared);
  EXPECT_EQ(placed("3.down_proj.weight_packed", DType::kU8, {300, 32}).parameter, 3U);
  const PlacedPiece reciprocal = placed("1.up_proj.weight_global_scale", DType::kF32, {1});
  EXPECT_EQ(reciprocal.parameter, 2U);
  EXPECT_TRUE(reciprocal.reciprocal && reciprocal.shared);
  EXPECT_THROW(placed("1.up_proj.weight_global_scale", DType::kBF16, {1}), Error);
}

TEST(QuantizedExperts, ExpertsWithoutAGateHaveTheScaleOfUp) {
  ExpertOptions options = FourExperts(512);
  options.gated = false;
  FusedMoE experts({.parallel = {1, 2}}, options);
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kTensor));
  experts.TakeQuantized(true);
  const PlacedPiece up = experts.Place("2.up_proj.weight_scale", "", {"s", DType::kF32, {}}).at(0);
  EXPECT_EQ(up.parameter, 1U);
  EXPECT_EQ(up.destination, Box::Slice({4}, 0, 2, 1));
}

TEST(QuantizedExperts, ScalesOfWholeTensorsHaveNoOrder) {
  ExpertOptions options = FourExperts(64);
  options.transposed = options.interleaved = true;
  FusedMoE experts({.parallel = {1, 2}}, options);
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kTensor));
  experts.TakeQuantized(true);
  const PlacedPiece scales = experts.Place("gate_up_proj_scale", "", {"s", DType::kF32, {4}}).at(0);
  EXPECT_TRUE(scales.order.is_same());
  EXPECT_EQ(scales.source, Box::Whole({4}));
  EXPECT_EQ(scales.destination, Box::Whole({4}));
}

ExpertOptions Alternating() {
  ExpertOptions options = FourExperts(64);
  options.hidden_size = 96;
  options.transposed = options.interleaved = true;
  options.bias = true;
  return options;
}

TEST(QuantizedExperts, BlocksOfMxfp4AreCutByWholeBlocks) {
  FusedMoE experts({.parallel = {1, 2}}, Alternating());
  experts.SetQuantization(true, QuantizedForm::Mxfp4InBlocks());
  EXPECT_EQ(experts.WhyNotSliced(), "");
  experts.TakeQuantized(true);
  ASSERT_EQ(experts.parameters().size(), 6U);
  EXPECT_EQ(experts.parameters()[0].spec, (TensorSpec{"w13_weight", DType::kU8, {4, 64, 48}}));
  EXPECT_EQ(experts.parameters()[1].spec, (TensorSpec{"w13_weight_scale", DType::kU8, {4, 64, 3}}));
  EXPECT_EQ(experts.parameters()[2].spec, (TensorSpec{"w2_weight", DType::kU8, {4, 96, 16}}));
  EXPECT_EQ(experts.parameters()[3].spec, (TensorSpec{"w2_weight_scale", DType::kU8, {4, 96, 1}}));

  const auto placed = [&](const char* name, Shape shape) {
    return experts.Place(name, "", {"b", DType::kU8, std::move(shape)}).at(0);
  };
  const PlacedPiece gate_up = placed("gate_up_proj_blocks", {4, 128, 3, 16});
  EXPECT_EQ(gate_up.source, (Box{4, {0, 64, 0, 0}, {4, 64, 3, 16}}));
  EXPECT_EQ(gate_up.destination, Box::Whole({4, 64, 48}));
  EXPECT_TRUE(gate_up.order.interleaved && !gate_up.order.transposed);
  EXPECT_EQ(placed("gate_up_proj_scales", {4, 128, 3}).source, (Box{3, {0, 64, 0}, {4, 64, 3}}));
  EXPECT_EQ(placed("down_proj_blocks", {4, 96, 2, 16}).source, (Box{4, {0, 0, 1, 0}, {4, 96, 1, 16}}));
  EXPECT_EQ(placed("down_proj_scales", {4, 96, 2}).source, (Box{3, {0, 0, 1}, {4, 96, 1}}));
  EXPECT_EQ(experts.Place("gate_up_proj_bias", "", {"b", DType::kBF16, {4, 128}}).at(0).parameter, 4U);
  EXPECT_THROW(placed("gate_up_proj", {4, 96, 128}), Error);
  EXPECT_THROW(placed("3.gate_up_proj_blocks", {128, 96}), Error);
  EXPECT_EQ(experts.Expected(0, "mlp.experts").at(0).name, "mlp.experts.gate_up_proj_blocks");
  EXPECT_EQ(experts.Expected(3, "mlp.experts").at(0).name, "mlp.experts.down_proj_scales");
  EXPECT_EQ(experts.Expected(5, "mlp.experts").at(0).name, "mlp.experts.down_proj_bias");

  experts.TakeQuantized(false);
  EXPECT_EQ(experts.parameters()[0].spec, (TensorSpec{"w13_weight", DType::kBF16, {4, 64, 96}}));
}

TEST(QuantizedExperts, ABlockOfMxfp4ThatStraddlesRanksIsNamedWithItsNumbers) {
  FusedMoE experts({.parallel = {2, 4}}, Alternating());
  experts.SetQuantization(true, QuantizedForm::Mxfp4InBlocks());
  EXPECT_EQ(experts.WhyNotSliced(),
            "expected whole blocks of 32 columns of 'down_proj' on each of 4 ranks, got 32 to 48 of 64");
}

// As transformers, ModelOpt and compressed-tensors call them.
TEST(QuantizedExperts, CodesAndScalesOfExpertsMayBeStacked) {
  FusedMoE experts({.parallel = {1, 2}}, FourExperts(512));
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kBlock));
  experts.TakeQuantized(true);
  const auto placed = [&](const std::string& name, DType dtype, Shape shape) {
    return experts.Place(name, "", {"t", dtype, std::move(shape)});
  };
  for (const char* name : {"gate_up_proj", "gate_up_proj.weight", "w13_weight"}) {
    EXPECT_EQ(placed(name, DType::kF8E4M3, {4, 1024, 300}).at(1).source, (Box{3, {0, 768, 0}, {4, 256, 300}})) << name;
  }
  for (const char* suffix : {"_scale_inv", "_weight_scale_inv", ".weight_scale_inv"}) {
    const std::vector<PlacedPiece> up = placed(std::string("gate_up_proj") + suffix, DType::kF32, {4, 8, 3});
    ASSERT_EQ(up.size(), 2U) << suffix;
    EXPECT_EQ(up[1].parameter, 1U);
    EXPECT_EQ(up[1].source, (Box{3, {0, 6, 0}, {4, 2, 3}}));
    EXPECT_EQ(up[1].destination, (Box{3, {0, 2, 0}, {4, 2, 3}}));
  }
  EXPECT_EQ(placed("down_proj_scale_inv", DType::kF32, {4, 3, 4}).at(0).source, (Box{3, {0, 0, 2}, {4, 3, 2}}));
  EXPECT_THROW(placed("down_proj_scale", DType::kF32, {4, 3, 4}), Error);
}

TEST(QuantizedExperts, ScalesOfTransposedStacksAreTransposed) {
  ExpertOptions options = FourExperts(512);
  options.transposed = true;
  FusedMoE experts({.parallel = {1, 2}}, options);
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kChannel));
  experts.TakeQuantized(true);
  const PlacedPiece up = experts.Place("gate_up_proj_weight_scale", "", {"s", DType::kF32, {4, 1, 1024}}).at(1);
  EXPECT_EQ(up.source, (Box{3, {0, 0, 768}, {4, 1, 256}}));
  EXPECT_EQ(up.destination, (Box{3, {0, 256, 0}, {4, 256, 1}}));
  EXPECT_TRUE(up.order.transposed);
}

TEST(QuantizedExperts, StacksOfNvfp4HaveTheirSecondScalesBesideThem) {
  FusedMoE experts({.parallel = {1, 2}}, FourExperts(64));
  experts.SetQuantization(true, QuantizedForm::Nvfp4());
  experts.TakeQuantized(true);
  const auto placed = [&](const char* name, DType dtype, Shape shape) {
    return experts.Place(name, "", {"s", dtype, std::move(shape)});
  };
  EXPECT_EQ(placed("gate_up_proj", DType::kU8, {4, 128, 150}).at(1).source, (Box{3, {0, 96, 0}, {4, 32, 150}}));
  EXPECT_EQ(placed("down_proj", DType::kU8, {4, 300, 32}).at(0).source, (Box{3, {0, 0, 16}, {4, 300, 16}}));
  EXPECT_EQ(placed("down_proj_weight_scale", DType::kF8E4M3, {4, 300, 4}).at(0).parameter, 4U);
  for (const char* name : {"gate_up_proj_weight_scale_2", "gate_up_proj.weight_scale_2", "w13_weight_scale_2"}) {
    EXPECT_EQ(placed(name, DType::kF32, {4}).at(0).parameter, 2U) << name;
  }
  for (const char* name :
       {"gate_up_proj_weight_global_scale", "gate_up_proj.weight_global_scale", "w13_weight_global_scale"}) {
    EXPECT_TRUE(placed(name, DType::kF32, {4}).at(0).reciprocal) << name;
  }
  for (const char* name : {"gate_up_proj.weight_packed", "gate_up_proj_packed", "w13_weight_packed"}) {
    EXPECT_EQ(placed(name, DType::kU8, {4, 128, 150}).at(0).parameter, 0U) << name;
  }
  EXPECT_THROW(placed("gate_up_proj_weight_scale_2", DType::kF32, {}), Error);  // one for all: from files
}

TEST(QuantizedExperts, CodesThatShareABytePairUpRowsOfATransposedStack) {
  ExpertOptions options = FourExperts(64);
  options.transposed = true;
  FusedMoE experts({.parallel = {1, 2}}, options);
  experts.SetQuantization(true, QuantizedForm::Nvfp4());
  experts.TakeQuantized(true);
  const PlacedPiece down = experts.Place("down_proj", "", {"s", DType::kU8, {4, 32, 300}}).at(0);
  EXPECT_EQ(down.source, (Box{3, {0, 16, 0}, {4, 16, 300}}));
  EXPECT_EQ(down.destination, (Box{3, {0, 0, 0}, {4, 300, 16}}));
  EXPECT_TRUE(down.order.transposed);
}

TEST(QuantizedExperts, ExpertsSayWhatOfThemCannotBeCut) {
  const auto why = [](std::int64_t intermediate_size, QuantizedForm::Scales scales, ParallelConfig parallel = {1, 2}) {
    FusedMoE experts({.parallel = parallel}, FourExperts(intermediate_size));
    experts.SetQuantization(true, FormOf(scales));
    return experts.WhyNotSliced();
  };
  EXPECT_EQ(why(768, QuantizedForm::Scales::kBlock, {3, 4}),
            "expected whole blocks of 128 rows of 'gate_proj' on each of 4 ranks, got 576 to 768 of 768");
  EXPECT_EQ(why(768, QuantizedForm::Scales::kTensor, {3, 4}), "");
}

}  // namespace
}  // namespace layercast
