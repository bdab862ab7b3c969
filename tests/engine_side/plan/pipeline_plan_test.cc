// Plans of pipeline stages: every tensor is placed on one stage, and elsewhere for all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kStages = 3;

std::unique_ptr<Module> Stage(int stage, bool tied) {
  const std::string config = R"({"architectures": ["Qwen2ForCausalLM"], "vocab_size": 100, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "torch_dtype": "float32", "tie_word_embeddings": )";
  return ModelRegistry::Builtin().Build(ModelConfig::Parse(config + (tied ? "true}" : "false}")),
                                        {.pp_rank = stage, .pp_size = kStages});
}

std::vector<TensorSpec> Specs(bool tied) {
  std::vector<TensorSpec> specs;
  const auto add = [&](const std::string& name, Shape shape) {
    specs.push_back({name, DType::kF32, std::move(shape)});
  };
  add("model.embed_tokens.weight", {100, 16});
  for (int i = 0; i < 4; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(layer + norm + ".weight", {16});
    for (const auto& [name, rows] : std::map<std::string, std::int64_t>{{"q", 16}, {"k", 8}, {"v", 8}}) {
      add(layer + "self_attn." + name + "_proj.weight", {rows, 16});
      add(layer + "self_attn." + name + "_proj.bias", {rows});
    }
    add(layer + "self_attn.o_proj.weight", {16, 16});
    add(layer + "mlp.gate_proj.weight", {24, 16});
    add(layer + "mlp.up_proj.weight", {24, 16});
    add(layer + "mlp.down_proj.weight", {16, 24});
  }
  add("model.norm.weight", {16});
  if (!tied) add("lm_head.weight", {100, 16});
  return specs;
}

TEST(PlanOfAStage, PlacesEveryTensorOnOneStageAlone) {
  const Manifest manifest = Manifest::OfSpecs("test", 0, Specs(false));
  std::vector<int> placed(manifest.size());
  std::uint64_t bytes = 0;
  for (int stage = 0; stage < kStages; ++stage) {
    const auto model = Stage(stage, false);
    const LoadPlan plan = LoadPlan::Build(*model, manifest);
    for (std::uint32_t tensor = 0; tensor < placed.size(); ++tensor) {
      placed[tensor] += plan.PlacementsOf(tensor).empty() ? 0 : 1;
    }
    std::size_t here = 0;
    for (std::uint32_t tensor = 0; tensor < placed.size(); ++tensor) here += plan.PlacementsOf(tensor).empty() ? 0 : 1;
    EXPECT_EQ(plan.elsewhere().size() + here, placed.size());
    EXPECT_THAT(plan.skipped(), IsEmpty());
    bytes += plan.placed_bytes();
  }
  EXPECT_THAT(placed, ::testing::Each(1));
  EXPECT_EQ(bytes, manifest.total_bytes());
}

TEST(PlanOfAStage, SaysWhoHoldsTheRest) {
  const Manifest manifest = Manifest::OfSpecs("test", 0, Specs(false));
  const auto model = Stage(0, false);
  const LoadPlan plan = LoadPlan::Build(*model, manifest);
  std::map<std::string, std::string> held_by;
  for (const ElsewhereTensor& tensor : plan.elsewhere()) {
    held_by[manifest.entry(tensor.tensor).spec.name] = tensor.held_by;
  }
  EXPECT_EQ(held_by.at("model.layers.1.mlp.up_proj.weight"), "pipeline stage 1");
  EXPECT_EQ(held_by.at("model.layers.3.mlp.up_proj.weight"), "pipeline stage 2");
  EXPECT_EQ(held_by.at("lm_head.weight"), "pipeline stage 2");
  EXPECT_FALSE(held_by.contains("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(held_by.contains("model.embed_tokens.weight"));
}

TEST(PlanOfAStage, HasTiedEmbeddingsOnBothEndsUnderTheirOwnersName) {
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    std::vector<TensorSpec> specs = Specs(true);
    specs[0].name = name;  // some trainers send one, some the other
    const Manifest manifest = Manifest::OfSpecs("test", 0, specs);
    std::vector<bool> here;
    for (int stage = 0; stage < kStages; ++stage) {
      const auto model = Stage(stage, true);
      here.push_back(!LoadPlan::Build(*model, manifest).PlacementsOf(0).empty());
    }
    EXPECT_THAT(here, ElementsAre(true, false, true)) << name;
  }
}

TEST(PlanOfAStage, MissesItsOwnTensorsAlone) {
  std::vector<TensorSpec> specs = Specs(false);
  std::erase_if(specs, [](const TensorSpec& spec) { return spec.name == "model.layers.1.mlp.up_proj.weight"; });
  const Manifest manifest = Manifest::OfSpecs("test", 0, specs);
  for (int stage = 0; stage < kStages; ++stage) {
    const auto model = Stage(stage, false);
    const std::vector<std::string> missing = LoadPlan::Check(*model, manifest).problems.Lines();
    if (stage == 1) {
      EXPECT_THAT(missing, ElementsAre("missing: model.layers.1.mlp.up_proj.weight"));
    } else {
      EXPECT_THAT(missing, IsEmpty());
    }
  }
}

TEST(PlanOfAStage, MissesWhatARuleDropsOnTheStageThatNeedsIt) {
  for (int stage = 0; stage < kStages; ++stage) {
    const auto model = Stage(stage, false);
    const NameRule drop = NameRule::Drop(NameRule::Match::kSuffix, "layers.1.self_attn.q_proj.bias", "x");
    model->SetMapper(WeightsMapper({drop}) | model->mapper());
    const std::vector<std::string> missing =
        LoadPlan::Check(*model, Manifest::OfSpecs("test", 0, Specs(false))).problems.missing;
    if (stage == 1) {
      EXPECT_THAT(missing, ElementsAre("model.layers.1.self_attn.q_proj.bias"));
    } else {
      EXPECT_THAT(missing, IsEmpty());
    }
  }
}

}  // namespace
}  // namespace layercast
