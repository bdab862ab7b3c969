#include "src/adapter/adapter_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

TEST(AdapterNames, AreReadAsSavedWithoutThePrefixAndWithTheAdaptersName) {
  const AdapterName expected{.module = "model.layers.0.self_attn.q_proj", .factor = Factor::kA, .wrapper = 0};
  EXPECT_EQ(ParseAdapterName("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"), expected);
  EXPECT_EQ(ParseAdapterName("model.layers.0.self_attn.q_proj.lora_A.weight"), expected);
  EXPECT_EQ(ParseAdapterName("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight"), expected);
}

TEST(AdapterNames, SayWhichFactorItIs) {
  const std::vector<std::pair<std::string, AdapterName>> names = {
      {"m.q.lora_B.weight", {"m.q", Factor::kB, 0}},
      {"m.q.lora_B.default.weight", {"m.q", Factor::kB, 0}},
      {"m.embed_tokens.lora_embedding_A", {"m.embed_tokens", Factor::kEmbeddingA, 0}},
      {"m.embed_tokens.lora_embedding_B", {"m.embed_tokens", Factor::kEmbeddingB, 0}},
      {"m.embed_tokens.lora_embedding_B.default", {"m.embed_tokens", Factor::kEmbeddingB, 0}},
      {"base_model.model.m.embed_tokens.base_layer.weight", {"m.embed_tokens", Factor::kBaseCopy, 0}},
      {"lm_head.lora_A.weight", {"lm_head", Factor::kA, 0}},
      {"m.experts.lora_A.weight", {"m.experts", Factor::kA, 0}},
      {"m.experts.base_layer.lora_A.weight", {"m.experts", Factor::kA, 1}},
      {"m.experts.base_layer.base_layer.lora_B.weight", {"m.experts", Factor::kB, 2}},
      {"m.experts.base_layer.base_layer.weight", {"m.experts", Factor::kBaseCopy, 1}},
      {"m.experts.3.w1.lora_A.weight", {"m.experts.3.w1", Factor::kA, 0}},
      {"m.default.lora_A.weight", {"m.default", Factor::kA, 0}},
      {"m.base_layer.q.lora_A.weight", {"m.base_layer.q", Factor::kA, 0}}};
  for (const auto& [name, expected] : names) EXPECT_EQ(ParseAdapterName(name), expected) << name;
}

TEST(AdapterNames, LoseExactlyOnePrefix) {
  EXPECT_EQ(ParseAdapterName("base_model.model.base_model.model.q.lora_A.weight").module, "base_model.model.q");
  EXPECT_EQ(ParseAdapterName("base_model.q.lora_A.weight").module, "base_model.q");
}

TEST(AdapterNames, RefuseWhatPeftWritesBesideFactors) {
  for (const auto& [name, field] : std::vector<std::pair<std::string, std::string>>{
           {"base_model.model.m.q_proj.lora_magnitude_vector", "use_dora"},
           {"m.q_proj.lora_magnitude_vector.default.weight", "use_dora"},
           {"m.q_proj.lora_B.bias", "lora_bias"},
           {"m.q_proj.lora_B.default.bias", "lora_bias"},
           {"m.q_proj.base_layer.bias", "(bias)"},
           {"m.k_proj.bias", "(bias)"},
           {"m.embed_tokens.token_adapter.trainable_tokens_delta", "trainable_token_indices"},
           {"m.embed_tokens.token_adapter.base_layer.weight", "trainable_token_indices"},
           {"lm_head.modules_to_save.default.weight", "modules_to_save"},
           {"base_model.model.lm_head.weight", "modules_to_save"},
           {"model.norm.weight", "modules_to_save"}}) {
    const std::string why = testing::ErrorOf([&] { (void)ParseAdapterName(name); }, ErrorCode::kUnsupported);
    EXPECT_THAT(why, HasSubstr("tensor '" + name + "': ")) << name;
    EXPECT_THAT(why, HasSubstr(field)) << name;
  }
}

TEST(AdapterNames, RefuseAllElse) {
  for (const std::string name :
       {"", "x", "lora_A.weight", "base_model.model.lora_A.weight", "m.q.lora_A", "m.q.lora_A.other.weight",
        "m.q.lora_C.weight", "m.q.lora_A.weight.x", "m..q.lora_A.weight", ".m.q.lora_A.weight", "m.q.lora_a.weight",
        "m.embed_tokens.lora_embedding_A.weight", "m.q.hada_w1_a", "base_layer.lora_A.weight", "m.q proj.lora_A.weight",
        "m.q\n.lora_A.weight", "m.q.lora_A.default.default.weight", "m.q.lora_A.weight\n"}) {
    const std::string why = testing::ErrorOf([&] { (void)ParseAdapterName(name); }, ErrorCode::kInvalidArgument);
    EXPECT_THAT(why, HasSubstr("expected a factor of LoRA")) << name;
  }
}

TEST(AdapterNames, WholeModulesAreToldFromFactors) {
  for (const char* name : {"base_model.model.lm_head.weight", "model.norm.weight", "x.modules_to_save.weight"}) {
    EXPECT_TRUE(IsWholeModuleName(name)) << name;
  }
  for (const char* name :
       {"m.q.lora_A.weight", "m.embed_tokens.base_layer.weight", "m.q.bias", "m.q.lora_C.weight", ""}) {
    EXPECT_FALSE(IsWholeModuleName(name)) << name;
  }
}

TEST(AdapterNames, FactorsAreCalledAsInNames) {
  EXPECT_EQ(Name(Factor::kA), "lora_A");
  EXPECT_EQ(Name(Factor::kEmbeddingB), "lora_embedding_B");
  EXPECT_EQ(Name(Factor::kBaseCopy), "base_layer");
}

}  // namespace
}  // namespace layercast
