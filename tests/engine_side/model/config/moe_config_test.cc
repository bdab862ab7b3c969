#include "layercast/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

constexpr const char* kOne = R"("num_experts_per_tok": 1, )";

// With these fields, as JSON. No class has defaults for the architecture.
MoeConfig ParseMoe(const std::string& fields) {
  Json json = {{"architectures", {"MineForCausalLM"}},
               {"vocab_size", 100},
               {"hidden_size", 64},
               {"intermediate_size", 128},
               {"num_hidden_layers", 4},
               {"num_attention_heads", 8},
               {"num_key_value_heads", 8}};
  json.update(Json::parse("{" + fields + "}"));
  return MoeConfig::Parse(ModelConfig::Parse(json.dump()));
}

std::string MoeConfigError(const std::string& fields) {
  return testing::ErrorOf([&] { (void)ParseMoe(fields); }, ErrorCode::kInvalidArgument);
}

TEST(MoeConfig, KnowsEveryNameOfTheNumberOfExperts) {
  for (const std::string name : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    EXPECT_EQ(ParseMoe(kOne + ("\"" + name + "\": 6")).num_experts, 6) << name;
  }
  EXPECT_EQ(MoeConfigError(""), "config.json: num_local_experts is missing");
}

TEST(MoeConfig, FillsInWhatTransformersTakes) {
  const MoeConfig mixtral = ParseMoe(R"("model_type": "mixtral")");
  EXPECT_EQ(mixtral.num_experts, 8);
  EXPECT_EQ(mixtral.num_experts_per_tok, 2);
  EXPECT_EQ(mixtral.intermediate_size, 128);  // of the dense field
  EXPECT_EQ(ParseMoe(R"("model_type": "qwen3_moe", "num_experts": 16)").num_experts, 16);
  EXPECT_EQ(ParseMoe(R"("model_type": "qwen2_moe")").shared_intermediate_size, 5632);
  EXPECT_EQ(ParseMoe(R"("model_type": "qwen2_moe", "shared_expert_intermediate_size": 0)").shared_intermediate_size, 0);
  const MoeConfig glm = ParseMoe(R"("model_type": "glm4_moe", "n_shared_experts": 2, "moe_intermediate_size": 24)");
  EXPECT_EQ(glm.shared_intermediate_size, 48);
  EXPECT_TRUE(glm.norm_topk_prob);
  EXPECT_EQ(glm.num_draft_layers, 1);
  EXPECT_THAT(glm.sparse_layers, ElementsAre(false, true, true, true, true));  // the last one drafts
}

TEST(MoeConfig, AsksHowManyExpertsATokenHasWhereTheClassDoesNotSay) {
  const std::string missing = "config.json: num_experts_per_tok is missing";
  EXPECT_EQ(MoeConfigError(R"("num_experts": 4)"), missing);
  EXPECT_EQ(MoeConfigError(R"("model_type": "deepseek_v2", "n_routed_experts": 4)"), missing);
  EXPECT_EQ(MoeConfigError(R"("model_type": "qwen3_moe", "num_experts_per_tok": null)"), missing);
}

TEST(MoeConfig, KnowsWhichLayersAreDense) {
  const auto sparse = [](const std::string& more) {
    return ParseMoe(kOne + (R"("num_experts": 4)" + more)).sparse_layers;
  };
  EXPECT_THAT(sparse(""), ElementsAre(true, true, true, true));
  EXPECT_THAT(sparse(R"(, "decoder_sparse_step": 2)"), ElementsAre(false, true, false, true));
  EXPECT_THAT(sparse(R"(, "mlp_only_layers": [0, 3])"), ElementsAre(false, true, true, false));
  EXPECT_THAT(sparse(R"(, "first_k_dense_replace": 3)"), ElementsAre(false, false, false, true));
  EXPECT_THAT(sparse(R"(, "first_k_dense_replace": 1, "moe_layer_freq": 2)"), ElementsAre(false, false, true, false));
}

TEST(MoeConfig, RefusesWhatCannotBeWithTheNumbers) {
  EXPECT_EQ(MoeConfigError(R"("num_experts": 4, "num_experts_per_tok": 5)"),
            "config.json: num_experts_per_tok 5 exceeds the number of experts 4");
  EXPECT_EQ(MoeConfigError(kOne + std::string(R"("num_experts": 6, "n_group": 4)")),
            "config.json: the number of experts 6 is not divisible by n_group 4");
  EXPECT_EQ(MoeConfigError(kOne + std::string(R"("num_experts": 6, "n_group": 3, "topk_group": 4)")),
            "config.json: topk_group 4 exceeds n_group 3");
  EXPECT_EQ(MoeConfigError(R"("num_experts": 6, "n_group": 3, "topk_group": 1, "num_experts_per_tok": 3)"),
            "config.json: num_experts_per_tok 3 exceeds the 2 experts of topk_group 1");
  for (const std::string layer : {"-1", "4", "99"}) {  // of 4 layers, and a draft one
    EXPECT_EQ(MoeConfigError(
                  kOne + (R"("num_experts": 4, "num_nextn_predict_layers": 1, "mlp_only_layers": [0, )" + layer + "]")),
              "config.json: mlp_only_layers: expected layers from 0 to 3, got [0," + layer + "]");
  }
  EXPECT_EQ(MoeConfigError(R"("num_experts": 0)"),
            "config.json: num_experts: expected an integer from 1 to 65536, got 0");
  EXPECT_EQ(MoeConfigError(kOne + std::string(R"("num_experts": 65536, "num_nextn_predict_layers": 1)")),
            "config.json: expected at most 262144 experts in all layers, got 5 layers of 65536");
}

}  // namespace
}  // namespace layercast
