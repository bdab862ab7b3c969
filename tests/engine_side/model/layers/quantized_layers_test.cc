// Where the codes and scales of linear layers go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_side/model/config/checkpoint_quantization.h"
#include "layercast/model/linear.h"
#include "tests/support/error_of.h"
#include "tests/support/quantized_mlp.h"
#include "tests/support/test_weights.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using testing::Layer;
using testing::Mlp;

constexpr const char* kBlocks = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

TEST(QuantizedLayers, ScalesOfBlocksLieWhereTheirBlocksDo) {
  const auto root = Mlp(1, 3);
  CheckpointQuantization::Parse(kBlocks).ApplyTo(*root);
  LinearLayer& gate_up = Layer(*root, 0);
  LinearLayer& down = Layer(*root, 1);
  EXPECT_EQ(gate_up.WhyNotSliced(), "");
  EXPECT_EQ(down.WhyNotSliced(), "");
  gate_up.TakeQuantized(true);
  down.TakeQuantized(true);
  EXPECT_EQ(gate_up.parameters()[0].spec, (TensorSpec{"weight", DType::kF8E4M3, {256, 256}}));
  EXPECT_FALSE(gate_up.parameters()[0].quantize);
  EXPECT_EQ(gate_up.parameters()[1].spec, (TensorSpec{"weight_scale_inv", DType::kF32, {2, 2}}));

  const Resolution up = root->Resolve({"mlp.up_proj.weight_scale_inv", DType::kF32, {3, 2}});
  ASSERT_EQ(up.pieces.size(), 1U);
  EXPECT_EQ(up.pieces[0].source, Box::Slice({3, 2}, 0, 1, 1));
  EXPECT_EQ(up.pieces[0].destination, Box::Slice({2, 2}, 0, 1, 1));
  const Resolution of_down = root->Resolve({"mlp.down_proj.weight_scale_inv", DType::kF32, {2, 3}});
  EXPECT_EQ(of_down.pieces.at(0).source, Box::Slice({2, 3}, 1, 1, 1));
  EXPECT_EQ(root->Resolve({"mlp.up_proj.input_scale", DType::kF32, {}}).owner, nullptr);  // skipped

  gate_up.TakeQuantized(false);
  EXPECT_EQ(gate_up.parameters().size(), 2U);
  EXPECT_EQ(gate_up.parameters()[0].spec, (TensorSpec{"weight", DType::kBF16, {256, 256}}));
  EXPECT_TRUE(gate_up.parameters()[0].quantize);
}

TEST(QuantizedLayers, ABlockThatStraddlesRanksIsNamedWithItsNumbers) {
  const auto root = Mlp(1, 2);
  CheckpointQuantization::Parse(kBlocks).ApplyTo(*root);
  EXPECT_EQ(Layer(*root, 0).WhyNotSliced(),
            "expected whole blocks of 128 rows of 'gate_proj' on each of 2 ranks, got 192 to 384 of 384");
  EXPECT_EQ(Layer(*root, 1).WhyNotSliced(),
            "expected whole blocks of 128 columns on each of 2 ranks, got 192 to 384 of 384");
}

TEST(QuantizedLayers, APartialBlockMayBeTheLastOfAFusedWeightAlone) {
  const auto why = [](std::int64_t first, std::int64_t second) {
    MergedColumnParallelLinear layer({{}, DType::kBF16, true}, 128, {{"q_a_proj", first}, {"kv_a_proj", second}},
                                     false);
    layer.SetQuantization(true, CheckpointQuantization::Parse(kBlocks).form);
    return layer.WhyNotSliced();
  };
  EXPECT_EQ(why(1536, 576), "");
  EXPECT_THAT(why(576, 1536), HasSubstr("rows of 'q_a_proj'"));
}

TEST(QuantizedLayers, ThatAreLoadedOnTheirOwnTakePartsOfOneScaleAlone) {
  const auto error = [](float of_up) {
    const auto root = Mlp(0, 1);
    Layer(*root, 0).SetQuantization(true, QuantizedForm{.scales = QuantizedForm::Scales::kTensor});
    Layer(*root, 0).TakeQuantized(true);
    testing::Weights weights;
    weights.Add({"mlp.gate_proj.weight_scale", DType::kF32, {1}}, {0.25F});
    weights.Add({"mlp.up_proj.weight_scale", DType::kF32, {1}}, {of_up});
    return testing::ErrorOf([&] { root->load_weights(*weights.Stream()); });
  };
  EXPECT_THAT(error(0.25F), HasSubstr("no error"));
  EXPECT_THAT(error(0.375F),
              HasSubstr("'mlp.up_proj.weight_scale' expected the scale of 'mlp.gate_proj.weight_scale'"));
}

TEST(QuantizedLayers, ScalesOfRowsGoAlongWithTheRows) {
  const auto root = Mlp(1, 2);
  CheckpointQuantization{
      .method = "compressed-tensors", .form = QuantizedForm{.scales = QuantizedForm::Scales::kChannel}, .ignored = {}}
      .ApplyTo(*root);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Layer(*root, i).WhyNotSliced(), "");
    Layer(*root, i).TakeQuantized(true);
  }
  const Resolution up = root->Resolve({"mlp.up_proj.weight_scale", DType::kF32, {384, 1}});
  EXPECT_EQ(up.pieces.at(0).source, Box::Slice({384, 1}, 0, 192, 192));
  EXPECT_EQ(up.pieces.at(0).destination, Box::Slice({384, 1}, 0, 192, 192));
  const Resolution down = root->Resolve({"mlp.down_proj.weight_scale", DType::kF32, {256, 1}});
  EXPECT_EQ(down.pieces.at(0).source, Box::Whole({256, 1}));
}

TEST(QuantizedLayers, Nvfp4HasTwoLevelsOfScales) {
  const auto root = Mlp(1, 2);
  CheckpointQuantization{.method = "modelopt", .form = QuantizedForm::Nvfp4(), .ignored = {}}.ApplyTo(*root);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Layer(*root, i).WhyNotSliced(), "");
    Layer(*root, i).TakeQuantized(true);
  }
  const auto parameters = Layer(*root, 0).parameters();
  ASSERT_EQ(parameters.size(), 4U);
  EXPECT_EQ(parameters[0].spec, (TensorSpec{"weight", DType::kU8, {384, 128}}));
  EXPECT_EQ(parameters[1].spec, (TensorSpec{"weight_scale", DType::kF8E4M3, {384, 16}}));
  EXPECT_EQ(parameters[2].spec, (TensorSpec{"weight_scale_2", DType::kF32, {1}}));
  EXPECT_EQ(parameters[3].spec.name, "bias");
  const auto placed = [&](const char* name, DType dtype, Shape shape) {
    return root->Resolve({name, dtype, std::move(shape)}).pieces.at(0);
  };
  EXPECT_EQ(placed("mlp.up_proj.weight", DType::kU8, {384, 128}).source, Box::Slice({384, 128}, 0, 192, 192));
  EXPECT_EQ(placed("mlp.down_proj.weight", DType::kU8, {256, 192}).source, Box::Slice({256, 192}, 1, 96, 96));
  EXPECT_EQ(placed("mlp.down_proj.weight_scale", DType::kF8E4M3, {256, 24}).source, Box::Slice({256, 24}, 1, 12, 12));
  EXPECT_EQ(placed("mlp.down_proj.weight_scale_2", DType::kF32, {1}).parameter, 2U);
  Layer(*root, 0).TakeQuantized(false);
  ASSERT_EQ(Layer(*root, 0).parameters().size(), 2U);
  EXPECT_EQ(Layer(*root, 0).parameters()[0].spec, (TensorSpec{"weight", DType::kBF16, {384, 256}}));
}

TEST(QuantizedLayers, ABlockOfNvfp4ThatStraddlesRanksIsNamedWithItsNumbers) {
  const auto root = Mlp(1, 16);  // 24 columns each
  CheckpointQuantization{.method = "modelopt", .form = QuantizedForm::Nvfp4(), .ignored = {}}.ApplyTo(*root);
  EXPECT_EQ(Layer(*root, 0).WhyNotSliced(), "");
  EXPECT_EQ(Layer(*root, 1).WhyNotSliced(),
            "expected whole blocks of 16 columns on each of 16 ranks, got 24 to 48 of 384");
}

TEST(QuantizedLayers, ExponentsOfMxfp8LieWhereTheirBlocksDo) {
  const auto root = Mlp(1, 2);
  CheckpointQuantization{.method = "modelopt", .form = QuantizedForm::Mxfp8(), .ignored = {}}.ApplyTo(*root);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Layer(*root, i).WhyNotSliced(), "");
    Layer(*root, i).TakeQuantized(true);
  }
  EXPECT_EQ(Layer(*root, 0).parameters()[0].spec, (TensorSpec{"weight", DType::kF8E4M3, {384, 256}}));
  EXPECT_EQ(Layer(*root, 0).parameters()[1].spec, (TensorSpec{"weight_scale", DType::kU8, {384, 8}}));
  const Resolution up = root->Resolve({"mlp.up_proj.weight_scale", DType::kU8, {384, 8}});
  EXPECT_EQ(up.pieces.at(0).source, Box::Slice({384, 8}, 0, 192, 192));
  const Resolution down = root->Resolve({"mlp.down_proj.weight_scale", DType::kU8, {256, 12}});
  EXPECT_EQ(down.pieces.at(0).source, Box::Slice({256, 12}, 1, 6, 6));
}

TEST(QuantizedLayers, ABlockOfMxfp8ThatStraddlesRanksIsNamedWithItsNumbers) {
  const auto root = Mlp(1, 8);  // 48 columns each
  CheckpointQuantization{.method = "modelopt", .form = QuantizedForm::Mxfp8(), .ignored = {}}.ApplyTo(*root);
  EXPECT_EQ(Layer(*root, 0).WhyNotSliced(), "");
  EXPECT_EQ(Layer(*root, 1).WhyNotSliced(),
            "expected whole blocks of 32 columns on each of 8 ranks, got 48 to 96 of 384");
}

}  // namespace
}  // namespace layercast
