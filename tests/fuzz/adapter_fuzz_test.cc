// Damaged configurations, patterns and names of LoRA adapters: either an error of the file's, or ranks that are at
// least 1 and scales that are numbers. Most useful under the sanitizers.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "layercast/adapter_config.h"
#include "layercast/error.h"
#include "src/adapter/adapter_tensors.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/fuzzing.h"

namespace layercast {
namespace {

constexpr char kAdapter[] = R"({"peft_type": "LORA", "r": 8, "lora_alpha": 16.5, "use_rslora": true, "bias": "none",
  "rank_pattern": {"q_proj": 4, "layers\\.[01]\\.mlp\\.(up|down)_proj": 2, "^v_proj|x{1,2}": 3, ".*experts.*": 8},
  "alpha_pattern": {"(?:k|q)_proj": 1, "\\w+\\.\\d+": 2e3}, "target_modules": ["q_proj", "experts"],
  "target_parameters": ["experts.gate_up_proj", "experts.down_proj", "gate.weight"], "peft_version": "0.19.2.dev0@x",
  "ensure_weight_tying": true, "modules_to_save": null, "init_lora_weights": "eva", "eva_config": {"tau": NaN}})";

void ExpectOfTheFile(const Error& error, const std::string& text) {
  EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument || error.code() == ErrorCode::kUnsupported)
      << error.what() << "\n"
      << text;
}

// "": it was read.
std::string ReadsOrRefuses(const std::string& text, const std::vector<std::string>& paths) {
  try {
    const AdapterConfig config = AdapterConfig::FromJson(text);
    EXPECT_EQ(AdapterConfig::FromJson(config.Canonical()).Canonical(), config.Canonical());
    for (const std::string& path : paths) {
      EXPECT_GE(config.RankOf(path), 1);
      EXPECT_TRUE(std::isfinite(config.ScaleOf(path))) << text;
    }
    return "";
  } catch (const Error& error) {
    ExpectOfTheFile(error, text);
    return error.what();
  }
}

TEST(AdapterFuzz, DamagedConfigurationsAreReadOrRefused) {
  const std::vector<std::string> paths = {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj",
                                          "model.layers.11.mlp.experts.gate_up_proj", "v_proj", ""};
  const auto take = [&](const std::string& text) { return ReadsOrRefuses(text, paths); };
  const Fuzzed fuzzed = Fuzz({"adapter_config", {kAdapter}, R"("{}[]:,.\*+?()|^$0189eE-aqtfn_)", take}, 20'000);
  EXPECT_GT(fuzzed.accepted, 300U);
}

TEST(AdapterFuzz, DamagedNamesAndShapesAreReadOrRefused) {
  const AdapterConfig config = AdapterConfig::FromJson(kAdapter);
  const std::vector<TensorSpec> whole = {{"base_model.model.m.layers.0.q_proj.lora_A.weight", DType::kF32, {4, 16}},
                                         {"base_model.model.m.layers.0.q_proj.lora_B.weight", DType::kBF16, {16, 4}},
                                         {"m.layers.0.mlp.experts.base_layer.lora_A.weight", DType::kF32, {32, 16}},
                                         {"m.layers.0.mlp.experts.base_layer.lora_B.weight", DType::kF32, {16, 32}},
                                         {"m.layers.0.mlp.experts.lora_A.default.weight", DType::kF32, {32, 16}},
                                         {"m.layers.0.mlp.experts.lora_B.default.weight", DType::kF32, {16, 32}},
                                         {"m.embed_tokens.lora_embedding_A", DType::kF16, {8, 100}},
                                         {"m.embed_tokens.lora_embedding_B", DType::kF16, {16, 8}},
                                         {"lm_head.lora_A.weight", DType::kF16, {8, 16}},
                                         {"lm_head.lora_B.weight", DType::kF16, {100, 8}},
                                         {"m.embed_tokens.base_layer.weight", DType::kF16, {100, 16}}};
  ASSERT_EQ(ReadAdapterTensors(whole, config).modules.size(), 5U);
  Damage damage(1, ".ABlora_weightdflt0");
  for (std::size_t rounds = FuzzInputs(20'000); rounds > 0 && !HasFailure(); --rounds) {
    std::vector<TensorSpec> specs = whole;
    for (std::size_t edits = 1 + damage.Below(3); edits > 0; --edits) {
      TensorSpec& spec = specs[damage.Below(specs.size())];
      switch (damage.Below(5)) {
        case 0: spec.shape.pop_back(); break;
        case 1: spec.shape.assign(1 + damage.Below(3), static_cast<std::int64_t>(damage.Below(9))); break;
        case 2: spec.dtype = DType::kI8; break;
        default: spec.name = damage.Apply(spec.name); break;
      }
      if (spec.shape.empty()) spec.shape = {3};
    }
    const AdapterTensors survey = SurveyAdapter(specs, config);
    for (const AdapterModule& module : survey.modules) {
      EXPECT_GE(module.rank, 1);
      EXPECT_EQ(specs[module.a].shape.at(0), specs[module.b].shape.at(1));
    }
    for (const AdapterTensors::Problem& problem : survey.problems) {
      ExpectOfTheFile(Error(problem.code, problem.message), problem.message);
    }
  }
}

}  // namespace
}  // namespace layercast
