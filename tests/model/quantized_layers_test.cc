// Which layers a quantization_config quantizes, and where their codes and scales go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "engine_side/model/checkpoint_quantization.h"
#include "engine_side/model/ignored_modules.h"
#include "layercast/error.h"
#include "layercast/model/linear.h"
#include "layercast/model/moe.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Tree;

constexpr const char* kBlocks = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

CheckpointQuantization Ignoring(std::string entry) {
  CheckpointQuantization quantization{.method = "fp8", .form = QuantizedForm{}, .ignored = {}};
  quantization.ignored.push_back(std::move(entry));
  return quantization;
}

TEST(IgnoredModules, NamesAreWholeSegmentsPatternsAndRegularExpressions) {
  const auto ignores = [](std::string entry, const char* path) {
    return IgnoredModules(std::array{std::move(entry)}).Contains(path);
  };
  EXPECT_TRUE(ignores("lm_head", "lm_head"));
  EXPECT_TRUE(ignores("lm_head", "language_model.lm_head"));
  EXPECT_FALSE(ignores("head", "lm_head"));
  EXPECT_TRUE(ignores("model.layers.1", "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(ignores("model.layers.1", "model.layers.11.mlp.down_proj"));
  EXPECT_TRUE(ignores("*.mlp.*", "model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(ignores("mlp*", "model.layers.1.mlp.down_proj"));
  EXPECT_TRUE(ignores("model.layers.*.self_attn", "model.layers.12.self_attn.qkv_proj"));  // below what it names
  EXPECT_FALSE(ignores("model.layers.*.self", "model.layers.12.self_attn.qkv_proj"));
  EXPECT_TRUE(ignores("re:.*mlp\\.(gate|up)_proj$", "model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(ignores("re:mlp", "model.layers.1.mlp.up_proj"));  // from the beginning
  EXPECT_THAT(ErrorOf([&] { ignores("re:(", "a"); }),
              HasSubstr("quantization_config: regular expression '(': missing closing parenthesis, at character 1"));
}

TEST(IgnoredModules, NoPatternTakesForEver) {
  const std::string path(200, 'a');
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "*a";
  EXPECT_TRUE(IgnoredModules(std::array{stars}).Contains(path));
  EXPECT_FALSE(IgnoredModules(std::array{stars + "b"}).Contains(path));
  const IgnoredModules backtracks(std::array{std::string("re:(a*)*[bc]")});
  EXPECT_THAT(ErrorOf([&] { (void)backtracks.Contains(path); }), HasSubstr("'(a*)*[bc]': match limit exceeded"));
  const std::vector<std::string> many(4097, "*.mlp");
  EXPECT_THAT(ErrorOf([&] { (void)IgnoredModules(many); }), HasSubstr("expected at most 4096 patterns"));
}

TEST(CheckpointQuantization, FormsOfTheField) {
  const auto form = [](const std::string& config) {
    return CheckpointQuantization::Parse(R"({"quantization_config": )" + config + "}").form;
  };
  using Scales = QuantizedForm::Scales;
  EXPECT_EQ(CheckpointQuantization::Parse("{}").method, "");
  EXPECT_EQ(form(R"({"quant_method": "fp8"})")->scales, Scales::kTensor);
  EXPECT_EQ(form(R"({"quant_method": "fp8", "weight_block_size": [64, 128]})")->recipe(), "");
  EXPECT_EQ(CheckpointQuantization::Parse(kBlocks).form->recipe(), "fp8_per_block");
  EXPECT_EQ(CheckpointQuantization::Parse(kBlocks).form->checkpoint_scale, "weight_scale_inv");
  EXPECT_EQ(form(R"({"quant_method": "fbgemm_fp8"})")->scales, Scales::kChannel);
  EXPECT_EQ(form(R"({"quant_method": "gptq"})"), std::nullopt);
  EXPECT_EQ(form(R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}})")->scales,
            Scales::kTensor);
  for (const char* name : {"FP8_PB_WO", "fp8_pb_wo"}) {  // as ModelOpt writes it
    const std::string config = std::string(R"({"quant_method": "modelopt", "quant_algo": ")") + name + "\"}";
    EXPECT_EQ(form(config)->recipe(), "fp8_per_block");
    EXPECT_EQ(form(config)->checkpoint_scale, "weight_scale");
  }
  EXPECT_EQ(form(R"({"quant_method": "modelopt", "quant_algo": "MXFP8"})")->recipe(), "mxfp8");
  EXPECT_EQ(form(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"type": "int",
      "num_bits": 8, "strategy": "channel"}}}})")
                ->recipe(),
            "int8_per_channel");
  EXPECT_EQ(form(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"type": "int",
      "num_bits": 4, "strategy": "group"}}}})"),
            std::nullopt);
  EXPECT_THAT(ErrorOf([&] { form(R"({"quant_method": "fp8", "weight_block_size": 128})"); }),
              HasSubstr("weight_block_size: expected two sizes, got 128"));
  EXPECT_THAT(ErrorOf([&] { form(R"({"quant_method": "fp8", "weight_block_size": [128, 9223372036854775807]})"); }),
              HasSubstr("weight_block_size: expected two sizes, got [128,9223372036854775807]"));
  EXPECT_THAT(ErrorOf([&] { form(R"({"quant_method": "fp8", "ignore": "lm_head"})"); }),
              HasSubstr("ignore: expected a list of names"));
}

// gate_up_proj of 384 rows each below "mlp".
std::unique_ptr<Tree> Mlp(int rank, int ranks) {
  const LayerContext context{{rank, ranks}, DType::kBF16, true};
  auto root = std::make_unique<Tree>();
  auto& mlp = root->Add("mlp", std::make_unique<Tree>());
  mlp.Add("gate_up_proj", std::make_unique<MergedColumnParallelLinear>(
                              context, 256, std::vector<MergedShard>{{"gate_proj", 384}, {"up_proj", 384}}, true));
  mlp.Add("down_proj", std::make_unique<RowParallelLinear>(context, 384, 256, false));
  return root;
}

LinearLayer& Layer(Module& root, std::size_t index) {
  return dynamic_cast<LinearLayer&>(*root.children()[0].second->children()[index].second);
}

TEST(QuantizedLayers, AFusedLayerIsIgnoredByItsNameOrByAllOfItsParts) {
  for (const char* entry : {"gate_up_proj", "re:mlp\\.(gate|up)_proj"}) {
    const auto root = Mlp(0, 1);
    Ignoring(entry).ApplyTo(*root);
    EXPECT_FALSE(Layer(*root, 0).parameters()[0].quantize);
    EXPECT_EQ(Layer(*root, 0).quantized_form(), std::nullopt);
    EXPECT_TRUE(Layer(*root, 1).parameters()[0].quantize);
    EXPECT_NE(Layer(*root, 1).quantized_form(), std::nullopt);
  }
  const auto root = Mlp(0, 1);
  EXPECT_THAT(ErrorOf([&] { Ignoring("up_proj").ApplyTo(*root); }),
              HasSubstr("some but not all parts of mlp.gate_up_proj"));
}

TEST(QuantizedLayers, ALayerThatIsIgnoredSaysWhichEntryItIs) {
  const auto why = [](const std::string& entries) {
    const auto root = Mlp(0, 1);
    CheckpointQuantization::Parse(R"({"quantization_config": {"quant_method": "fp8", "ignore": [)" + entries + "]}}")
        .ApplyTo(*root);
    return Layer(*root, 0).why_no_form();
  };
  EXPECT_EQ(why(R"("lm_head")"), "");
  EXPECT_EQ(why(R"("mlp")"), "quantization_config leaves out mlp.gate_up_proj (by its entry 'mlp')");
  EXPECT_EQ(why(R"("*.up_proj", "re:mlp\\.gate")"),
            "quantization_config leaves out mlp.gate_up_proj (by its entry 're:mlp\\.gate')");
  EXPECT_EQ(why(R"("*.up_proj", "gate_proj")"),
            "quantization_config leaves out mlp.gate_proj (by its entry 'gate_proj') and all others of its parts");
}

TEST(QuantizedLayers, WhatIsIgnoredMayHaveTheCheckpointsName) {
  for (const char* entry : {"backbone.mlp.gate_up_proj", "backbone.*.gate_up_proj", "mlp.gate_up_proj"}) {
    const auto root = Mlp(0, 1);
    root->SetMapper(WeightsMapper({NameRule::Prefix("backbone", "")}));
    Ignoring(entry).ApplyTo(*root);
    EXPECT_FALSE(Layer(*root, 0).parameters()[0].quantize) << entry;
    EXPECT_TRUE(Layer(*root, 1).parameters()[0].quantize) << entry;
  }
}

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

TEST(CheckpointQuantization, OfModelOptsFileWithoutAnAlgorithmIsNone) {
  const std::string keys_and_values_alone = R"({"quant_algo": null, "kv_cache_quant_algo": "FP8"})";
  const std::string config = R"({"quantization_config": {"quantization": )" + keys_and_values_alone + "}}";
  EXPECT_EQ(CheckpointQuantization::Parse(config).method, "");
}

TEST(CheckpointQuantization, NamesTheFieldThatHasNoForm) {
  const auto why = [](const std::string& config) {
    return CheckpointQuantization::Parse(R"({"quantization_config": )" + config + "}").why_no_form;
  };
  const auto of_group = [&](const std::string& group) {
    return why(R"({"quant_method": "compressed-tensors", "config_groups": {"all": )" + group + "}}");
  };
  EXPECT_EQ(why(R"({"quant_method": "fp8"})"), "");
  EXPECT_EQ(why(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})"),
            "quantization_config.quant_algo: expected 'FP8', 'FP8_PER_CHANNEL_PER_TOKEN', 'FP8_PB_WO', 'MXFP8' or "
            "'NVFP4', got \"W4A8_AWQ\"");
  EXPECT_EQ(why(R"({"quant_method": "modelopt", "quant_algo": "MXFP8", "group_size": 16})"),
            "quantization_config.group_size: expected 32, got 16");
  EXPECT_EQ(why(R"({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "group_size": 64})"),
            "quantization_config.group_size: expected 128, got 64");
  EXPECT_EQ(why(R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 32}})"),
            "hf_quant_config.json: quantization.group_size: expected 16, got 32");
  EXPECT_THAT(why(R"({"quant_method": "gptq"})"), HasSubstr("'mxfp4' or 'fbgemm_fp8', got \"gptq\""));
  EXPECT_THAT(why(R"({"quant_method": "compressed-tensors"})"),
              HasSubstr("config_groups: expected one group, got null"));
  EXPECT_EQ(of_group("{}"), "quantization_config.config_groups.all.weights: expected an object, got null");
  EXPECT_THAT(of_group(R"({"weights": {"type": "float", "num_bits": 8, "strategy": "block"}})"),
              HasSubstr("block_structure: expected two sizes, got null"));
  EXPECT_THAT(of_group(R"({"format": "pack-quantized", "weights": {"type": "int", "num_bits": 8}})"),
              HasSubstr("all.format: expected 'int-quantized', a code in a byte, got \"pack-quantized\""));
  EXPECT_THAT(of_group(R"({"weights": {"type": "int", "num_bits": 8, "strategy": "tensor"}})"),
              HasSubstr("strategy: expected 'channel' of 8-bit integers, got \"tensor\""));
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

TEST(QuantizedLayers, ExpertsAreIgnoredByTheirNameOrByThatOfEachOfThem) {
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

TEST(QuantizedLayers, SomeExpertsAloneAreNamedWithOneThatIsNot) {
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

TEST(QuantizedLayers, ScalesOfExpertsLieWhereTheirBlocksDo) {
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

TEST(QuantizedLayers, ScalesOfExpertsRowsGoAlongWithTheRows) {
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
TEST(QuantizedLayers, AnExpertHasOneScaleOfGateAndUpAndOneOfDown) {
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
  for (const char* name : {"0.up_proj.weight_scale", "3.w3.weight_scale"}) {  // ranks decide alike
    EXPECT_EQ(refusal(name, {1}), "expected one scale of gate and up of an expert together, got one of up alone");
  }
  EXPECT_EQ(refusal("3.down_proj.weight_scale", {3}), "expected [1] f32, got [3] f32");
  EXPECT_EQ(refusal("gate_up_proj_scale", {}), "expected [4] f32, got [] f32");
}

TEST(QuantizedLayers, ExpertsOfNvfp4HaveOneGlobalScaleOfGateAndUpAndOneOfDown) {
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
  EXPECT_EQ(ErrorOf([&] { placed("1.up_proj.weight_scale_2", DType::kF32, {}); }),
            "expected one scale of gate and up of an expert together, got one of up alone");
}

TEST(QuantizedLayers, ExpertsWithoutAGateHaveTheScaleOfUp) {
  ExpertOptions options = FourExperts(512);
  options.gated = false;
  FusedMoE experts({.parallel = {1, 2}}, options);
  experts.SetQuantization(true, FormOf(QuantizedForm::Scales::kTensor));
  experts.TakeQuantized(true);
  const PlacedPiece up = experts.Place("2.up_proj.weight_scale", "", {"s", DType::kF32, {}}).at(0);
  EXPECT_EQ(up.parameter, 1U);
  EXPECT_EQ(up.destination, Box::Slice({4}, 0, 2, 1));
}

TEST(QuantizedLayers, ScalesOfWholeTensorsHaveNoOrder) {
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

TEST(QuantizedLayers, BlocksOfMxfp4AreCutByWholeBlocks) {
  FusedMoE experts({.parallel = {1, 2}}, Alternating());
  experts.SetQuantization(true, QuantizedForm::Mxfp4());
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

TEST(QuantizedLayers, ABlockOfMxfp4ThatStraddlesRanksIsNamedWithItsNumbers) {
  FusedMoE experts({.parallel = {2, 4}}, Alternating());
  experts.SetQuantization(true, QuantizedForm::Mxfp4());
  EXPECT_EQ(experts.WhyNotSliced(),
            "expected whole blocks of 32 columns of 'down_proj' on each of 4 ranks, got 32 to 48 of 64");
}

// As transformers, ModelOpt and compressed-tensors call them.
TEST(QuantizedLayers, CodesAndScalesOfExpertsMayBeStacked) {
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

TEST(QuantizedLayers, ScalesOfTransposedStacksAreTransposed) {
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

TEST(QuantizedLayers, StacksOfNvfp4HaveTheirSecondScalesBesideThem) {
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
  EXPECT_THROW(placed("gate_up_proj_weight_scale_2", DType::kF32, {}), Error);  // one for all: from files
}

TEST(QuantizedLayers, CodesThatShareABytePairUpRowsOfATransposedStack) {
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

TEST(QuantizedLayers, ExpertsSayWhatOfThemCannotBeCut) {
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
