// What a config.json leaves out, by the configuration class of its family.
#include "engine_side/model/registry/config_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/model/config.h"
#include "tests/engine_side/model/config/parsed_config.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ParseConfig;
using Json = nlohmann::json;

TEST(ModelConfig, TakesTheDefaultsOfTheModelsOwnClass) {
  const ModelConfig mistral = ParseConfig({{"model_type", "mistral"}});
  EXPECT_EQ(mistral.WindowOf(0), 4096);
  EXPECT_EQ(ParseConfig({{"model_type", "mistral"}, {"sliding_window", nullptr}}).WindowOf(0), 0);
  const ModelConfig gemma2 = ParseConfig({{"model_type", "gemma2"}, {"num_key_value_heads", 4}});
  EXPECT_TRUE(gemma2.tie_word_embeddings);
  EXPECT_EQ(gemma2.head_dim, 256);
  EXPECT_EQ(gemma2.hidden_act, "gelu_pytorch_tanh");
  EXPECT_EQ(gemma2.attn_logit_softcapping, 50.0);
  EXPECT_THAT(gemma2.layer_types, ElementsAre("sliding_attention", "full_attention", "sliding_attention"));
  EXPECT_EQ(ParseConfig({{"model_type", "gemma2"}, {"attn_logit_softcapping", nullptr}}).attn_logit_softcapping,
            std::nullopt);
  const ModelConfig gemma3 = ParseConfig({{"model_type", "gemma3_text"}, {"sliding_window_pattern", 3}});
  EXPECT_THAT(gemma3.layer_types, ElementsAre("sliding_attention", "sliding_attention", "full_attention"));
  EXPECT_EQ(gemma3.RopeOf(0).theta, 1e4);
  EXPECT_EQ(gemma3.RopeOf(2).theta, 1e6);
}

TEST(ModelConfig, TakesGemmasOwnThetaForEachTypeOfLayer) {
  const Json full = {{"rope_type", "linear"}, {"factor", 8.0}};
  const auto gemma_with = [&](const Json& sliding, const Json& more) {
    Json fields = {{"model_type", "gemma3_text"},
                   {"sliding_window_pattern", 3},
                   {"rope_parameters", {{"full_attention", full}, {"sliding_attention", sliding}}}};
    fields.update(more);
    return ParseConfig(fields);
  };
  for (const Json& sliding : {Json({{"rope_type", "default"}}), Json(nullptr)}) {
    const ModelConfig config = gemma_with(sliding, Json::object());
    EXPECT_EQ(config.RopeOf(0).theta, 1e4);
    EXPECT_EQ(config.RopeOf(2).theta, 1e6);
    EXPECT_EQ(config.RopeOf(2).type, "linear");
    EXPECT_EQ(gemma_with(sliding, {{"rope_local_base_freq", 2e4}}).RopeOf(0).theta, 2e4);
  }
  // What a README has one add is about the layers that see everything.
  const ModelConfig added =
      gemma_with({{"rope_type", "default"}, {"rope_theta", 3e4}},
                 {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"rope_theta", 2e6}}}});
  EXPECT_EQ(added.RopeOf(0).theta, 3e4);
  EXPECT_EQ(added.RopeOf(2).theta, 2e6);
  EXPECT_EQ(added.RopeOf(2).type, "yarn");
}

TEST(ModelConfig, TakesTheDefaultsOfWhatIsBuiltWhereNoClassHasTheType) {
  // As MiniMax-M2 was first published.
  const ModelConfig minimax = ParseConfig(
      {{"architectures", {"MiniMaxM2ForCausalLM"}}, {"model_type", "minimax"}, {"head_dim", 128}, {"rotary_dim", 64}});
  EXPECT_EQ(minimax.rope.numbers.at("partial_rotary_factor"), 0.5);
  EXPECT_EQ(minimax.rope.theta, 5e6);
  const ModelConfig kimi = ParseConfig({{"architectures", {"DeepseekV3ForCausalLM"}}, {"model_type", "kimi_k2"}});
  EXPECT_EQ(kimi.head_dim, 64);
  EXPECT_EQ(kimi.max_position_embeddings, 4096);
  // The type is asked first, and a name that nobody knows has no defaults.
  EXPECT_EQ(ParseConfig({{"architectures", {"MistralForCausalLM"}}}).sliding_window, std::nullopt);
  EXPECT_EQ(
      ParseConfig({{"architectures", {"MineForCausalLM", "MistralForCausalLM"}}, {"model_type", "mine"}}).WindowOf(0),
      4096);
  EXPECT_EQ(ParseConfig({{"architectures", {"MineForCausalLM"}}, {"model_type", "mine"}}).sliding_window, std::nullopt);
}

TEST(ModelConfig, TakesTheDefaultsOfWhatIsBuiltWhereThereIsNoType) {
  const auto untyped = [](const char* architecture, const Json& type) {
    Json fields = testing::ConfigWith({{"architectures", {architecture}}, {"model_type", type}});
    if (type.is_null()) fields.erase("model_type");
    return ModelConfig::Parse(fields.dump());
  };
  for (const Json& type : {Json(), Json("")}) {
    const ModelConfig mistral = untyped("MistralForCausalLM", type);
    EXPECT_EQ(mistral.WindowOf(0), 4096);
    EXPECT_EQ(mistral.model_type, "mistral");
    EXPECT_EQ(untyped("Mamba2ForCausalLM", type).num_attention_heads, 0);
    EXPECT_EQ(untyped("MineForCausalLM", type).model_type, "");
  }
}

TEST(ModelConfig, TakesTheContextLengthOfTheModelsOwnClass) {
  const std::vector<std::pair<const char*, std::int64_t>> lengths = {
      {"llama", 2048},      {"gemma2", 8192},      {"gemma3_text", 131072}, {"glm4_moe", 131072}, {"mistral", 131072},
      {"mixtral", 131072},  {"phi3", 4096},        {"qwen2", 32768},        {"qwen2_moe", 32768}, {"qwen3", 32768},
      {"qwen3_moe", 32768}, {"qwen3_next", 32768}, {"qwen3_5_text", 32768}};
  for (const auto& [type, length] : lengths) {
    EXPECT_EQ(ParseConfig({{"model_type", type}, {"num_attention_heads", 32}}).max_position_embeddings, length) << type;
  }
}

TEST(ModelConfig, TakesQwensOwnNumberOfKeyValueHeadsUnlessItIsNull) {
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(ParseConfig({{"model_type", type}, {"num_attention_heads", 64}}).num_key_value_heads, 32) << type;
    EXPECT_EQ(ParseConfig({{"model_type", type}, {"num_key_value_heads", nullptr}}).num_key_value_heads, 8) << type;
  }
}

// As google/gemma-3-4b-it has it: transformers wrote of a nested configuration what differs from its class alone.
TEST(ModelConfig, TakesTheSizesThatAPublishedTextConfigLeavesOut) {
  const Json text = {{"model_type", "gemma3_text"},
                     {"hidden_size", 2560},
                     {"intermediate_size", 10240},
                     {"num_hidden_layers", 34},
                     {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                     {"sliding_window", 1024}};
  const Json whole = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                      {"model_type", "gemma3"},
                      {"torch_dtype", "bfloat16"},
                      {"text_config", text}};
  const ModelConfig gemma = ModelConfig::Parse(whole.dump());
  EXPECT_EQ(gemma.vocab_size, 262208);
  EXPECT_EQ(gemma.num_attention_heads, 8);
  EXPECT_EQ(gemma.num_key_value_heads, 4);
  EXPECT_EQ(gemma.head_dim, 256);
  EXPECT_EQ(gemma.max_position_embeddings, 131072);
  EXPECT_EQ(gemma.RopeOf(0).type, "default");
  EXPECT_EQ(gemma.RopeOf(5).type, "linear");
  for (const char* type : {"gemma3", "gemma3_text", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}) {
    EXPECT_NO_THROW((void)ModelConfig::Parse(Json({{"model_type", type}}).dump())) << type;
  }
}

TEST(ModelConfig, TakesTheDefaultsOfGptOss) {
  const ModelConfig config = ParseConfig({{"model_type", "gpt_oss"}, {"num_key_value_heads", 4}});
  EXPECT_THAT(config.layer_types, ElementsAre("sliding_attention", "full_attention", "sliding_attention"));
  EXPECT_EQ(config.WindowOf(0), 128);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_EQ(config.rope.type, "yarn");
  EXPECT_EQ(config.rope.theta, 150000.0);
  EXPECT_EQ(config.rope.numbers.at("truncate"), 0.0);
  const Json published = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
  const ModelConfig other =
      ParseConfig({{"model_type", "gpt_oss"}, {"num_key_value_heads", 4}, {"rope_scaling", published}});
  EXPECT_EQ(other.rope.numbers.at("factor"), 4.0);
  EXPECT_FALSE(other.rope.numbers.contains("truncate"));
  const auto rope_with = [](const char* field, const Json& value) {
    return ParseConfig({{"model_type", "gpt_oss"}, {"num_key_value_heads", 4}, {field, value}}).rope;
  };
  EXPECT_EQ(rope_with("rope_scaling", nullptr), config.rope);
  EXPECT_EQ(rope_with("rope_parameters", nullptr), config.rope);
  EXPECT_EQ(rope_with("rope_parameters", {{"rope_type", "default"}}).type, "default");
}

}  // namespace
}  // namespace layercast
