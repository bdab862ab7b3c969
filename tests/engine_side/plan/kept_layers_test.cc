#include "engine_side/plan/kept_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/engine_side/plan/planned_model.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(KeptLayers, AreCondensedByTheirFirstNumber) {
  const std::vector<std::string_view> paths = {"model.embed_tokens",
                                               "model.layers.0.mlp.down_proj",
                                               "model.layers.0.mlp.experts.3",
                                               "model.layers.1.mlp.down_proj",
                                               "model.layers.2.mlp.down_proj",
                                               "model.layers.7.mlp.down_proj",
                                               "model.layers.8",
                                               "7",
                                               "model.2b.norm"};
  EXPECT_THAT(Condensed(paths), ElementsAre("model.embed_tokens", "model.layers.0-2,7.mlp.down_proj",
                                            "model.layers.0.mlp.experts.3", "model.layers.8", "7", "model.2b.norm"));
  EXPECT_THAT(Condensed({}), IsEmpty());
}

TEST(KeptLayers, AreNotListedWithoutABound) {
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("part_" + std::to_string(i));
  names.emplace_back("layers.0");
  names.emplace_back("layers.1");
  const std::vector<std::string_view> paths(names.begin(), names.end());
  const std::vector<std::string> texts = Condensed(paths);
  ASSERT_THAT(texts, SizeIs(65));
  EXPECT_EQ(texts[63], "part_63");
  EXPECT_EQ(texts[64], "and 38 more");
}

class KeptLayersOfAPlan : public ::testing::Test {
 protected:
  // Attention of layer 1 has come.
  KeptLayersOfAPlan() {
    std::vector<TensorSpec> specs = testing::TinySpecs({.layers = 3});
    std::erase_if(specs, [](const TensorSpec& spec) { return !spec.name.starts_with("model.layers.1.self_attn."); });
    plan_ = LoadPlan::Build(*model_, Manifest::OfSpecs("test", 0, specs), true);
  }

  const std::unique_ptr<testing::Tree> model_ = testing::TinyModel({.layers = 3});
  LoadPlan plan_ = LoadPlan::WithoutTensors(*model_);
};

TEST_F(KeptLayersOfAPlan, AreThoseThatNothingCameFor) {
  EXPECT_THAT(
      Condensed(KeptLayers(plan_)),
      ElementsAre("model.embed_tokens", "model.layers.0-2.input_layernorm", "model.layers.0,2.self_attn.qkv_proj",
                  "model.layers.0,2.self_attn.o_proj", "model.layers.0-2.mlp.gate_up_proj",
                  "model.layers.0-2.mlp.down_proj", "model.norm", "lm_head"));
}

TEST_F(KeptLayersOfAPlan, MayBeRestricted) {
  EXPECT_THAT(KeptBeyond(plan_, {}), IsEmpty());
  CheckMayKeep(plan_, {});
  std::vector<std::string> may_keep = {"model.embed_tokens", "model.layers", "model.norm", "lm_head"};
  CheckMayKeep(plan_, may_keep);
  may_keep[1] = "model.layers.1";
  may_keep[2] = "model.nor";  // not a whole segment
  EXPECT_EQ(testing::ErrorOf([&] { CheckMayKeep(plan_, may_keep); }, ErrorCode::kInvalidArgument),
            "a partial version: nothing came for 11 layers that are not among those that may be kept: "
            "model.layers.0,2.input_layernorm, model.layers.0,2.self_attn.qkv_proj, "
            "model.layers.0,2.self_attn.o_proj, model.layers.0,2.mlp.gate_up_proj, "
            "model.layers.0,2.mlp.down_proj, model.norm");
}

}  // namespace
}  // namespace layercast
