// What a quantization_config says, and of which layers.
#include "engine_side/model/config/checkpoint_quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/model/config/listed_modules.h"
#include "tests/support/error_of.h"
#include "tests/support/quantized_mlp.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Layer;
using testing::Mlp;

constexpr const char* kBlocks = R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}})";

CheckpointQuantization Ignoring(std::string entry) {
  CheckpointQuantization quantization{.method = "fp8", .form = QuantizedForm{}, .ignored = {}};
  quantization.ignored.push_back(std::move(entry));
  return quantization;
}

TEST(ListedModules, NamesAreWholeSegmentsPatternsAndRegularExpressions) {
  const auto ignores = [](std::string entry, const char* path) {
    return ListedModules(std::array{std::move(entry)}).Contains(path);
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

TEST(ListedModules, NoPatternTakesForEver) {
  const std::string path(200, 'a');
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "*a";
  EXPECT_TRUE(ListedModules(std::array{stars}).Contains(path));
  EXPECT_FALSE(ListedModules(std::array{stars + "b"}).Contains(path));
  const ListedModules backtracks(std::array{std::string("re:(a*)*[bc]")});
  EXPECT_THAT(ErrorOf([&] { (void)backtracks.Contains(path); }), HasSubstr("'(a*)*[bc]': match limit exceeded"));
  const std::vector<std::string> many(4097, "*.mlp");
  EXPECT_THAT(ErrorOf([&] { (void)ListedModules(many); }), HasSubstr("expected at most 4096 patterns"));
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
  EXPECT_EQ(form(R"({"quant_method": "mxfp8", "weight_block_size": [1, 32]})")->recipe(), "mxfp8");
  EXPECT_EQ(form(R"({"quant_method": "mxfp8"})")->checkpoint_scale, "weight_scale_inv");
  EXPECT_EQ(form(R"({"quant_method": "mxfp8", "weight_block_size": [1, 16]})"), std::nullopt);
  EXPECT_EQ(form(R"({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"})")->recipe(), "nvfp4");
  EXPECT_EQ(form(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"type": "float",
      "num_bits": 8, "strategy": "group", "group_size": 32}}}})")
                ->recipe(),
            "mxfp8");
  EXPECT_EQ(form(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"type": "int",
      "num_bits": 8, "strategy": "channel"}}}})")
                ->recipe(),
            "int8_per_channel");
  EXPECT_EQ(form(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"type": "int",
      "num_bits": 4, "strategy": "group"}}}})"),
            std::nullopt);
  EXPECT_EQ(form(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"type": "float",
      "num_bits": 4, "strategy": "group", "group_size": 32}}}})"),
            QuantizedForm::Mxfp4());
  const auto grouped = form(R"({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {
      "type": "int", "num_bits": 4, "strategy": "group", "group_size": 64, "symmetric": false}}}})");
  EXPECT_EQ(grouped->block_cols, 64);
  EXPECT_EQ(grouped->packed_bits, 0);
  EXPECT_TRUE(grouped->has_zero_points);
  EXPECT_EQ(grouped->recipe(), "");
  for (const char* algorithm : {"MXFP4", "mxfp4", "W4A8_MXFP4_FP8"}) {
    const std::string config = std::string(R"({"quant_method": "modelopt", "quant_algo": ")") + algorithm + "\"}";
    EXPECT_EQ(form(config), QuantizedForm::Mxfp4());
  }
  EXPECT_EQ(form(R"({"quant_method": "modelopt", "quant_algo": "W8A8_SQ_PER_CHANNEL"})")->recipe(), "int8_per_channel");
  EXPECT_EQ(form(R"({"quant_method": "modelopt", "quant_algo": "W4A8_NVFP4_FP8", "group_size": 32})")->recipe(), "");
  EXPECT_TRUE(form(R"({"quant_method": "mxfp4"})")->in_blocks);
  EXPECT_THAT(ErrorOf([&] { form(R"({"quant_method": "fp8", "weight_block_size": 128})"); }),
              HasSubstr("weight_block_size: expected two sizes, got 128"));
  EXPECT_THAT(ErrorOf([&] { form(R"({"quant_method": "fp8", "weight_block_size": [128, 9223372036854775807]})"); }),
              HasSubstr("weight_block_size: expected two sizes, got [128,9223372036854775807]"));
  EXPECT_THAT(ErrorOf([&] { form(R"({"quant_method": "fp8", "ignore": "lm_head"})"); }),
              HasSubstr("ignore: expected a list of names"));
}

TEST(CheckpointQuantization, RefusesTransformsAndPackedSparsityOfCompressedTensors) {
  const auto with = [](const std::string& more) {
    (void)CheckpointQuantization::Parse(R"({"quantization_config": {"quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}}, )" +
                                        more + "}}");
  };
  EXPECT_EQ(ErrorOf([&] { with(R"("transform_config": {"config_groups": {"R1": {"type": "hadamard"}}})"); }),
            "config.json: quantization_config.transform_config: expected none, as nothing transforms weights or "
            R"(activations, got {"config_groups":{"R1":{"type":"hadamard"}}})");
  EXPECT_EQ(ErrorOf([&] { with(R"("sparsity_config": {"format": "sparse-24-bitmask"})"); }),
            "config.json: quantization_config.sparsity_config.format: expected 'dense', got \"sparse-24-bitmask\"");
  for (const char* nothing :
       {R"("transform_config": {}, "sparsity_config": {})", R"("transform_config": {"config_groups": {}})",
        R"("transform_config": null, "sparsity_config": {"format": "dense"})"}) {
    EXPECT_NO_THROW(with(nothing)) << nothing;
  }
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
  EXPECT_EQ(
      why(R"({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"})"),
      "quantization_config.quant_algo: expected 'FP8', 'FP8_PER_CHANNEL_PER_TOKEN', 'FP8_PB_WO', 'MXFP8', 'MXFP4', "
      "'NVFP4', 'W4A16_NVFP4', 'W4A8_NVFP4_FP8', 'W4A8_MXFP4_FP8' or 'W8A8_SQ_PER_CHANNEL', got \"W4A8_AWQ\"");
  EXPECT_EQ(why(R"({"quant_method": "modelopt", "quant_algo": "MXFP8", "group_size": 16})"),
            "quantization_config.group_size: expected 32, got 16");
  EXPECT_EQ(why(R"({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "group_size": 64})"),
            "quantization_config.group_size: expected 128, got 64");
  EXPECT_EQ(why(R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 32}})"),
            "hf_quant_config.json: quantization.group_size: expected 16, got 32");
  EXPECT_THAT(why(R"({"quant_method": "gptq"})"), HasSubstr("'mxfp4' or 'fbgemm_fp8', got \"gptq\""));
  EXPECT_THAT(why(R"({"quant_method": "compressed-tensors"})"),
              HasSubstr("config_groups: expected an object of groups, got null"));
  EXPECT_EQ(of_group("{}"), "quantization_config.config_groups.all.weights: expected an object, got null");
  EXPECT_THAT(of_group(R"({"weights": {"type": "float", "num_bits": 8, "strategy": "block"}})"),
              HasSubstr("block_structure: expected two sizes, got null"));
  EXPECT_THAT(of_group(R"({"format": "marlin-24", "weights": {"type": "int", "num_bits": 8}})"),
              HasSubstr("all.format: expected 'int-quantized', a code in a byte, got \"marlin-24\""));
  EXPECT_THAT(
      of_group(R"({"format": "pack-quantized", "weights": {"type": "int", "num_bits": 4, "strategy": "group"}})"),
      HasSubstr("all.weights.strategy: expected 'channel', or 'group' with a group_size, got \"group\""));
  EXPECT_THAT(of_group(R"({"weights": {"type": "int", "num_bits": 8, "strategy": "tensor"}})"),
              HasSubstr("strategy: expected 'channel', or 'group' with a group_size, got \"tensor\""));
  EXPECT_THAT(of_group(R"({"weights": {"type": "float", "num_bits": 4, "strategy": "tensor"}})"),
              HasSubstr("strategy: expected 'tensor_group' or 'group' of e2m1, got \"tensor\""));
  EXPECT_THAT(of_group(R"({"weights": {"type": "float", "num_bits": 6, "strategy": "group"}})"),
              HasSubstr("num_bits: expected 8 or 4, got 6"));
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

// An expression cannot be mapped: modules are tried under the names that it is made for.
TEST(QuantizedLayers, AnExpressionMayBeOfTheCheckpointsNames) {
  const auto ignores = [](const char* entry, std::vector<NameRule> rules) {
    const auto root = Mlp(0, 1);
    root->SetMapper(WeightsMapper(std::move(rules)));
    Ignoring(entry).ApplyTo(*root);
    EXPECT_TRUE(Layer(*root, 1).parameters()[0].quantize) << entry;
    return !Layer(*root, 0).parameters()[0].quantize;
  };
  EXPECT_TRUE(ignores(R"(re:backbone\.mlp\.gate_up.*)", {NameRule::Prefix("backbone", "")}));
  EXPECT_TRUE(ignores(R"(re:backbone\.mlp\.(gate|up)_proj)", {NameRule::Prefix("backbone", "")}));
  EXPECT_TRUE(ignores(R"(re:model\.language_model\.block\.gate_up.*)",
                      {NameRule::Prefix("model.language_model", "model"), NameRule::Prefix("model.block", "mlp")}));
  EXPECT_FALSE(ignores(R"(re:backbone\..*)", {NameRule::Prefix("backbone", "other")}));
}

// Of gate_up_proj and down_proj: the recipes of their forms, or why there is none.
std::vector<std::string> FormsUnder(const std::string& config) {
  const auto root = Mlp(0, 1);
  CheckpointQuantization::Parse(R"({"quantization_config": )" + config + "}").ApplyTo(*root);
  std::vector<std::string> forms;
  for (const std::size_t i : {0U, 1U}) {
    const auto& form = Layer(*root, i).quantized_form();
    forms.emplace_back(form ? form->recipe() : Layer(*root, i).why_no_form());
    EXPECT_EQ(Layer(*root, i).parameters()[0].quantize,
              form.has_value() || forms.back().find("expected") != forms.back().npos);
  }
  return forms;
}

// Groups of FP8 by channel and of NVFP4.
std::string Groups(const std::string& targets_of_fp8, const std::string& targets_of_nvfp4,
                   const std::string& more = "") {
  return R"({"quant_method": "compressed-tensors", "config_groups": {
      "a": {"targets": [)" +
         targets_of_fp8 + R"(], "weights": {"type": "float", "num_bits": 8, "strategy": "channel"}},
      "b": {"targets": [)" +
         targets_of_nvfp4 + R"(], "weights": {"type": "float", "num_bits": 4,
            "strategy": "tensor_group"}}})" +
         more + "}";
}

TEST(QuantizationGroups, NamesGoBeforeClasses) {
  using ::testing::ElementsAre;
  const std::string none = "quantization_config has no group of it";
  EXPECT_THAT(FormsUnder(Groups(R"("Linear")", R"("re:.*down_proj")")), ElementsAre("fp8_per_channel", "nvfp4"));
  EXPECT_THAT(FormsUnder(Groups(R"("mlp.gate_proj", "mlp.up_proj")", R"("mlp.down_proj")")),
              ElementsAre("fp8_per_channel", "nvfp4"));
  EXPECT_THAT(FormsUnder(Groups(R"("RowParallelLinear")", R"("MergedColumn")")),
              ElementsAre("nvfp4", "fp8_per_channel"));
  EXPECT_THAT(FormsUnder(Groups(R"("mlp.gate_up_proj")", R"("other")")), ElementsAre("fp8_per_channel", none));
  EXPECT_THAT(
      FormsUnder(Groups(R"("Linear")", R"("re:.*gate_proj", "re:.*up_proj")", R"(, "ignore": ["mlp.down_proj"])")),
      ElementsAre("nvfp4", "quantization_config leaves out mlp.down_proj (by its entry 'mlp.down_proj')"));
}

TEST(QuantizationGroups, AnExpressionMayBeOfTheCheckpointsNames) {
  const auto root = Mlp(0, 1);
  root->SetMapper(WeightsMapper({NameRule::Prefix("model.language_model", "")}));
  CheckpointQuantization::Parse(R"({"quantization_config": )" +
                                Groups(R"("Linear")", R"("re:model\\.language_model\\..*down_proj")") + "}")
      .ApplyTo(*root);
  EXPECT_EQ(Layer(*root, 0).quantized_form()->recipe(), "fp8_per_channel");
  EXPECT_EQ(Layer(*root, 1).quantized_form()->recipe(), "nvfp4");
}

TEST(QuantizationGroups, PartsOfALayerAreOfOneForm) {
  EXPECT_THAT(ErrorOf([] { FormsUnder(Groups(R"("Linear")", R"("re:.*up_proj$")")); }),
              HasSubstr("parts of mlp.gate_up_proj have several forms: mlp.gate_proj is in "
                        "quantization_config.config_groups.a (fp8_per_channel), mlp.up_proj is in "
                        "quantization_config.config_groups.b (nvfp4)"));
  EXPECT_THAT(ErrorOf([] { FormsUnder(Groups(R"("mlp.gate_proj")", R"("other")")); }),
              HasSubstr("mlp.up_proj is in no group"));
}

TEST(QuantizationGroups, AreModelOptsPerModule) {
  const auto layers = [](const std::string& named) {
    return FormsUnder(R"({"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": )" + named + "}}");
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(layers(R"({"mlp.gate_proj": {"quant_algo": "FP8"}, "mlp.up_proj": {"quant_algo": "FP8"},
                         "mlp.down_proj": {"quant_algo": "nvfp4", "group_size": 16}})"),
              ElementsAre("fp8_per_tensor", "nvfp4"));
  EXPECT_THAT(layers(R"({"mlp.down_proj": {"quant_algo": "W4A8_AWQ"}})"),
              ElementsAre("hf_quant_config.json: quantization has no group of it",
                          HasSubstr("quantized_layers.mlp.down_proj.quant_algo: expected 'FP8'")));
  EXPECT_EQ(layers("{}")[0],
            "hf_quant_config.json: quantization.quantized_layers: expected an object of groups, got {}");
}

// "v_proj" is the end of "qkv_proj", as "up_proj" is of "gate_up_proj".
TEST(QuantizedLayers, AnExpressionOfOnePartIsNotOneOfTheFusedLayer) {
  EXPECT_THAT(
      ErrorOf([] { Ignoring("re:.*up_proj$").ApplyTo(*Mlp(0, 1)); }),
      HasSubstr("some but not all parts of mlp.gate_up_proj are quantized: mlp.gate_proj is, mlp.up_proj is ignored"));
}

}  // namespace
}  // namespace layercast
