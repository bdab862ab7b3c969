#include "layercast/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine_side/model/config/parsed_config.h"

namespace layercast {
namespace {

using testing::ConfigError;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::ParseConfig;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

TEST(ModelConfig, FillsInWhatTheFormatLeavesOut) {
  const ModelConfig config = ParseConfig(Json::object());
  EXPECT_THAT(config.architectures, ElementsAre("LlamaForCausalLM"));
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.dtype, DType::kF32);
  EXPECT_EQ(config.rope, RopeConfig());
  EXPECT_FALSE(config.tie_word_embeddings || config.attention_bias || config.mlp_bias);
  EXPECT_THAT(config.layer_types, ElementsAre("full_attention", "full_attention", "full_attention"));
  EXPECT_EQ(config.sliding_window, std::nullopt);
  EXPECT_THAT(config.eos_token_ids, IsEmpty());
}

TEST(ModelConfig, ReadsBothSpellingsAlike) {
  const Json rope = {{"rope_type", "llama3"},
                     {"factor", 8.0},
                     {"low_freq_factor", 1.0},
                     {"high_freq_factor", 4.0},
                     {"original_max_position_embeddings", 8192}};
  Json with_theta = rope;
  with_theta["rope_theta"] = 500000.0;
  const ModelConfig old_one =
      ParseConfig({{"torch_dtype", "bfloat16"}, {"rope_theta", 500000.0}, {"rope_scaling", rope}});
  const ModelConfig new_one = ParseConfig({{"dtype", "bfloat16"}, {"rope_parameters", with_theta}});
  EXPECT_EQ(old_one.dtype, DType::kBF16);
  EXPECT_EQ(new_one.dtype, DType::kBF16);
  EXPECT_EQ(old_one.rope, new_one.rope);
  EXPECT_EQ(new_one.rope.type, "llama3");
  EXPECT_EQ(new_one.rope.theta, 500000.0);
  EXPECT_THAT(new_one.rope.numbers,
              UnorderedElementsAre(Pair("factor", 8.0), Pair("low_freq_factor", 1.0), Pair("high_freq_factor", 4.0),
                                   Pair("original_max_position_embeddings", 8192.0)));
}

TEST(ModelConfig, ReadsTheRotatedPartOfAHeadAsMiniMaxM2WritesIt) {
  const Json fields = {{"model_type", "minimax_m2"}, {"num_key_value_heads", 4}};
  const auto part_with = [&](const Json& more) {
    Json all = fields;
    all.update(more);
    return ParseConfig(all).rope.numbers;
  };
  EXPECT_EQ(part_with({{"rotary_dim", 64}}).at("partial_rotary_factor"), 0.5);  // of 128
  EXPECT_EQ(part_with({{"rotary_dim", 8}, {"head_dim", 32}}).at("partial_rotary_factor"), 0.25);
  EXPECT_FALSE(part_with({{"head_dim", 32}}).contains("partial_rotary_factor"));
  const Json rope = {{"rope_type", "default"}, {"rope_theta", 1e6}, {"partial_rotary_factor", 0.75}};
  EXPECT_EQ(part_with({{"rotary_dim", 64}, {"rope_parameters", rope}}).at("partial_rotary_factor"), 0.75);
}

TEST(ModelConfig, ReadsTheTextPartOfAVisionLanguageModel) {
  Json text = testing::MinimalConfig();
  text.erase("architectures");
  text["model_type"] = "gemma3_text";
  const Json whole = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                      {"model_type", "gemma3"},
                      {"dtype", "bfloat16"},
                      {"hidden_size", 7},
                      {"text_config", text},
                      {"vision_config", {{"hidden_size", 5}}}};
  const ModelConfig config = ModelConfig::Parse(whole.dump());
  EXPECT_THAT(config.architectures, ElementsAre("Gemma3ForConditionalGeneration"));
  EXPECT_EQ(config.model_type, "gemma3_text");
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.dtype, DType::kBF16);
  Json wrong = whole;
  wrong["text_config"]["hidden_size"] = 0;
  EXPECT_THAT([&] { (void)ModelConfig::Parse(wrong.dump()); },
              ::testing::ThrowsMessage<Error>(HasSubstr("config.json: text_config.hidden_size: expected an integer")));
}

// As transformers ties them: by the outer object, or by its class, whatever the language model's own part says.
TEST(ModelConfig, TiesTheEmbeddingsOfAVisionLanguageModelAsTheOuterObjectSays) {
  const auto tied = [](const char* type, const Json& outer, const Json& inner) {
    Json whole = {{"model_type", type}, {"text_config", {{"model_type", std::string(type) + "_text"}}}};
    whole.update(outer);
    whole["text_config"].update(inner);
    return ModelConfig::Parse(whole.dump()).tie_word_embeddings;
  };
  const Json nothing = Json::object(), yes = {{"tie_word_embeddings", true}}, no = {{"tie_word_embeddings", false}};
  for (const Json& inner : {nothing, yes, no}) {
    for (const char* type : {"gemma3", "qwen3_5", "qwen3_5_moe"}) {
      EXPECT_TRUE(tied(type, yes, inner)) << type << inner;
      EXPECT_FALSE(tied(type, no, inner)) << type << inner;
      EXPECT_EQ(tied(type, nothing, inner), std::string(type) == "gemma3") << type << inner;
    }
  }
}

TEST(ModelConfig, TakesHeadDimFromItsFieldOrFromAllHeads) {
  EXPECT_EQ(ParseConfig({{"head_dim", 128}}).head_dim, 128);  // not hidden_size / heads
  EXPECT_EQ(ParseConfig({{"head_dim", nullptr}}).head_dim, 8);
  EXPECT_EQ(ParseConfig({{"model_type", "qwen3"}, {"num_key_value_heads", 8}}).head_dim, 128);
  EXPECT_EQ(ConfigError({{"num_attention_heads", 7}}),
            "config.json: hidden_size 64 is not divisible by num_attention_heads 7, and there is no head_dim");
  EXPECT_EQ(ParseConfig({{"num_attention_heads", 7}, {"head_dim", 10}}).head_dim, 10);
}

TEST(ModelConfig, ResolvesSlidingWindowsAsTransformersDoes) {
  const Json qwen = {{"sliding_window", 16}, {"max_window_layers", 2}};
  EXPECT_EQ(ParseConfig(qwen).sliding_window, std::nullopt);
  EXPECT_EQ(ParseConfig({{"sliding_window", 0}, {"use_sliding_window", false}}).sliding_window, std::nullopt);
  EXPECT_THAT(ParseConfig(qwen).layer_types, Each("full_attention"));
  Json on = qwen;
  on["use_sliding_window"] = true;
  EXPECT_EQ(ParseConfig(on).sliding_window, 16);
  EXPECT_THAT(ParseConfig(on).layer_types, ElementsAre("full_attention", "full_attention", "sliding_attention"));
  EXPECT_THAT(ConfigError({{"layer_types", {"full_attention"}}}),
              HasSubstr("layer_types holds 1 entries, num_hidden_layers is 3"));
  EXPECT_THAT(ConfigError({{"layer_types", {"full_attention", "sliding_attention", "full_attention"}}}),
              HasSubstr("layer_types has sliding_attention, expected a sliding_window"));
  const ModelConfig hybrid = ParseConfig({{"layer_types", {"full_attention", "linear_attention", "full_attention"}}});
  EXPECT_THAT([&] { (void)hybrid.WindowOf(1); },
              ::testing::ThrowsMessage<Error>(HasSubstr("of layer 1, got \"linear_attention\"")));
}

// Of 30 layers each.
TEST(ModelConfig, SlidesWhereQwensOwnClassesDo) {
  const auto windows_of = [](const char* type, const Json& more) {
    Json fields = {
        {"model_type", type}, {"num_hidden_layers", 30}, {"num_key_value_heads", 8}, {"use_sliding_window", true}};
    fields.update(more);
    const ModelConfig config = ParseConfig(fields);
    std::vector<std::int64_t> windows;
    for (std::int64_t i = 0; i < 30; ++i) windows.push_back(config.WindowOf(i));
    return windows;
  };
  const auto slides_where = [](std::int64_t window, const auto& slides) {
    std::vector<std::int64_t> windows;
    for (std::int64_t i = 0; i < 30; ++i) windows.push_back(slides(i) ? window : 0);
    return windows;
  };
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(windows_of(type, Json::object()), slides_where(4096, [](std::int64_t i) { return i >= 28; })) << type;
  }
  const Json small = {{"sliding_window", 16}, {"max_window_layers", 3}};
  EXPECT_EQ(windows_of("qwen3", small), slides_where(16, [](std::int64_t i) { return i >= 3; }));
  EXPECT_EQ(windows_of("qwen2_moe", Json::object()),
            slides_where(4096, [](std::int64_t i) { return i < 28 && i % 2 == 0; }));
  EXPECT_EQ(windows_of("qwen2_moe", small), slides_where(16, [](std::int64_t i) { return i == 0 || i == 2; }));
  for (const Json& more : {Json::object(), Json({{"max_window_layers", 48}})}) {
    EXPECT_THAT(windows_of("qwen3_moe", more), Each(4096));
  }
  for (const char* type : {"qwen2", "qwen3", "qwen3_moe"}) {
    EXPECT_THAT(windows_of(type, {{"sliding_window", nullptr}}), Each(0)) << type;
    EXPECT_THAT(windows_of(type, {{"use_sliding_window", nullptr}}), Each(0)) << type;
  }
}

TEST(ModelConfig, ReadsOneEndTokenOrSeveral) {
  EXPECT_THAT(ParseConfig({{"eos_token_id", 2}}).eos_token_ids, ElementsAre(2));
  EXPECT_THAT(ParseConfig({{"eos_token_id", {128001, 128009}}}).eos_token_ids, ElementsAre(128001, 128009));
  EXPECT_THAT(ParseConfig({{"eos_token_id", nullptr}}).eos_token_ids, IsEmpty());
}

TEST(ModelConfig, NamesFieldAndValuesOfWhatCannotBe) {
  EXPECT_EQ(ConfigError({{"model_type", 3}}), "config.json: model_type: expected a text, got 3");
  EXPECT_EQ(ConfigError({{"hidden_size", 0}}),
            "config.json: hidden_size: expected an integer from 1 to 2147483647, got 0");
  EXPECT_EQ(ConfigError({{"hidden_size", -64}}),
            "config.json: hidden_size: expected an integer from 1 to 2147483647, got -64");
  EXPECT_EQ(ConfigError({{"vocab_size", "many"}}),
            "config.json: vocab_size: expected an integer from 1 to 2147483647, got \"many\"");
  EXPECT_EQ(ConfigError({{"vocab_size", 1.5}}),
            "config.json: vocab_size: expected an integer from 1 to 2147483647, got 1.5");
  EXPECT_EQ(ConfigError({{"vocab_size", 18446744073709551615ULL}}),
            "config.json: vocab_size: expected an integer from 1 to 2147483647, got 18446744073709551615");
  EXPECT_EQ(ConfigError({{"intermediate_size", nullptr}}), "config.json: intermediate_size is missing");
  EXPECT_EQ(ConfigError({{"num_key_value_heads", 3}}),
            "config.json: num_attention_heads 8 is not divisible by num_key_value_heads 3");
  EXPECT_EQ(ConfigError({{"tie_word_embeddings", 1}}),
            "config.json: tie_word_embeddings: expected true or false, got 1");
  EXPECT_EQ(ConfigError({{"torch_dtype", "float8"}}),
            "config.json: torch_dtype: expected float32, float16 or bfloat16, got \"float8\"");
  EXPECT_EQ(ConfigError({{"dtype", "int8"}}),
            "config.json: dtype: expected float32, float16 or bfloat16, got \"int8\"");
  EXPECT_EQ(ConfigError({{"rms_norm_eps", 0}}), "config.json: rms_norm_eps: expected a number above 0, got 0");
  EXPECT_EQ(ConfigError({{"rope_scaling", 4}}), "config.json: rope_scaling: expected an object, got 4");
  EXPECT_EQ(ConfigError({{"text_config", 5}}), "config.json: text_config: expected an object, got 5");
  EXPECT_EQ(ConfigError({{"architectures", "LlamaForCausalLM"}}),
            "config.json: architectures: expected a list of names, got \"LlamaForCausalLM\"");
}

TEST(ModelConfig, RefusesTextThatIsNotAnObject) {
  EXPECT_THROW((void)ModelConfig::Parse("{"), Error);
  EXPECT_THROW((void)ModelConfig::Parse("[]"), Error);
  EXPECT_THROW((void)ModelConfig::Parse(""), Error);
}

TEST(ModelConfig, ReadsInfinityAsPythonWritesIt) {
  const std::string fields = R"({"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "vocab_size": 8,
      "hidden_size": 8, "num_hidden_layers": 1, "note": "\" Infinity", "time_step_limit": [0.0, Infinity]})";
  const Json kept = Json::parse(ModelConfig::Parse(fields).json);
  EXPECT_EQ(kept["note"], "\" Infinity");
  EXPECT_EQ(kept["time_step_limit"][1], Json({{"__float__", "Infinity"}}));
}

TEST(ModelConfig, ReadsWhatPythonWritesForFloatsThatNoFieldNeeds) {
  const std::string fields = R"({"model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "vocab_size": 8,
      "hidden_size": 8, "num_hidden_layers": 1, "foo": NaN, "deep": [{"bar": -Infinity}],
      "time_step_limit": [-Infinity, Infinity]})";
  const Json kept = Json::parse(ModelConfig::Parse(fields).json);
  EXPECT_EQ(kept["foo"], Json({{"__float__", "NaN"}}));  // and never null, which would stand for the default
  EXPECT_EQ(kept["deep"][0]["bar"], Json({{"__float__", "-Infinity"}}));
}

TEST(ModelConfig, RefusesAFloatThatIsNoNumberByTheFieldsName) {
  const Json nan = {{"__float__", "NaN"}};
  const Json infinite = {{"__float__", "-Infinity"}};
  EXPECT_EQ(ConfigError({{"rope_theta", nan}}), "config.json: rope_theta: expected a number above 0, got NaN");
  EXPECT_EQ(ConfigError({{"rms_norm_eps", infinite}}),
            "config.json: rms_norm_eps: expected a number above 0, got -Infinity");
  EXPECT_THAT(ConfigError({{"hidden_size", nan}}), HasSubstr("hidden_size: expected an integer from 1"));
  EXPECT_THAT(ConfigError({{"attention_bias", nan}}), HasSubstr("attention_bias: expected true or false, got NaN"));
  EXPECT_THAT(ConfigError({{"eos_token_id", {1, nan}}}), HasSubstr("eos_token_id: expected an integer or a list"));
  EXPECT_EQ(ConfigError({{"text_config", nan}}), "config.json: text_config: expected an object, got NaN");
  EXPECT_THAT(ConfigError({{"rope_scaling", nan}}), HasSubstr("rope_scaling: expected an object, got NaN"));
  EXPECT_THAT(ConfigError({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", nan}}}}),
              HasSubstr("rope_parameters.rope_theta: expected a number above 0, got NaN"));
  EXPECT_THAT(ConfigError({{"rope_scaling", {{"rope_type", "linear"}, {"factor", infinite}}}}),
              HasSubstr("rope_scaling.factor: expected a number of at least 1, got -Infinity"));
}

TEST(ModelConfig, AsksForHeadsWhereThereIsAttention) {
  EXPECT_THAT(ConfigError({{"num_attention_heads", nullptr}}), HasSubstr("num_attention_heads is missing"));
  EXPECT_EQ(ParseConfig({{"num_attention_heads", nullptr}, {"model_type", "mamba2"}}).num_attention_heads, 0);
}

TEST(ModelConfig, TakesLinearAttentionFromAListOrAnInterval) {
  EXPECT_THAT(ParseConfig({{"full_attention_interval", 2}}).layer_types,
              ElementsAre("linear_attention", "full_attention", "linear_attention"));
  EXPECT_THAT(ParseConfig({{"model_type", "qwen3_5_text"}, {"num_hidden_layers", 4}}).layer_types,
              ElementsAre("linear_attention", "linear_attention", "linear_attention", "full_attention"));
}

TEST(ModelConfig, NeedsNoSizeOfAnMlpThatNoLayerHas) {
  Json experts_alone = testing::ConfigWith({{"model_type", "qwen3_5_moe_text"}, {"moe_intermediate_size", 24}});
  experts_alone.erase("intermediate_size");
  EXPECT_EQ(ModelConfig::Parse(experts_alone.dump()).intermediate_size, 24);
  // A family that may have dense layers says how large they are.
  EXPECT_EQ(ConfigError({{"model_type", "qwen3_moe"}, {"intermediate_size", nullptr}}),
            "config.json: intermediate_size is missing");
}

TEST(ModelConfig, TakesTheRotatedPartOfALatentHeadForTheHead) {
  // 64 is not divisible by 7: nothing divides the hidden size by the number of heads.
  const ModelConfig config = ParseConfig({{"model_type", "deepseek_v3"}, {"num_attention_heads", 7}});
  EXPECT_EQ(config.head_dim, 64);
}

TEST(ModelConfig, TakesTheRotatedPartOfAHeadInElements) {
  EXPECT_EQ(ParseConfig({{"model_type", "minimax_m2"}, {"rotary_dim", 64}}).rope.numbers.at("partial_rotary_factor"),
            0.5);
  EXPECT_EQ(ConfigError({{"model_type", "minimax_m2"}, {"rotary_dim", 256}}),
            "config.json: rotary_dim: expected an integer from 1 to 128, got 256");
}

TEST(ModelConfig, TakesLayersOfAHybridFromItsListOrPattern) {
  for (const Json& blocks :
       {Json({{"hybrid_override_pattern", "M-*"}}), Json({{"layers_block_type", {"mamba", "mlp", "attention"}}}),
        Json({{"layers_block_type", {"linear_attention", "mlp", "full_attention"}}})}) {
    Json fields = {{"model_type", "nemotron_h"}, {"num_hidden_layers", nullptr}, {"mlp_hidden_act", "silu"}};
    fields.update(blocks);
    const ModelConfig config = ParseConfig(fields);
    EXPECT_EQ(config.num_hidden_layers, 3);
    EXPECT_THAT(config.layer_types, ElementsAre("linear_attention", "mlp", "full_attention"));
    EXPECT_EQ(config.hidden_act, "silu");
  }
}

TEST(ModelConfig, TakesTheEpsilonThatStateSpacesHave) {
  for (const char* type : {"mamba2", "nemotron_h"}) {
    const Json both = {{"model_type", type}, {"rms_norm_eps", 1e-6}, {"layer_norm_epsilon", 1e-4}};
    EXPECT_EQ(ParseConfig(both).rms_norm_eps, 1e-4) << type;
    EXPECT_EQ(ParseConfig({{"model_type", type}, {"rms_norm_eps", 1e-6}}).rms_norm_eps, 1e-5) << type;
  }
}

TEST(ModelConfig, KnowsWhatNemotronHCalledItsFieldsFirst) {
  const ModelConfig config = ParseConfig({{"model_type", "nemotron_h"},
                                          {"mamba_n_groups", 2},
                                          {"n_groups", 8},
                                          {"mamba_d_conv", 3},
                                          {"mamba_dt_min", 0.3},
                                          {"mamba_conv_bias", false}});
  const Json kept = Json::parse(config.json);
  EXPECT_EQ(kept["n_groups"], 2);
  EXPECT_EQ(kept["conv_kernel"], 3);
  EXPECT_EQ(kept["time_step_min"], 0.3);
  EXPECT_EQ(kept["use_conv_bias"], false);
}

}  // namespace
}  // namespace layercast
