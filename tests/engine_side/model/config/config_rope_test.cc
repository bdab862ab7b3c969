// The rope fields of a config.json, and the length of the context that engines make of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "layercast/model/config.h"
#include "tests/engine_side/model/config/parsed_config.h"

namespace layercast {
namespace {

using testing::ConfigError;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::ParseConfig;
using ::testing::UnorderedElementsAre;
using Json = nlohmann::json;

TEST(ConfigRope, KeepsWhatARopeTypeNeeds) {
  const ModelConfig yarn = ParseConfig({{"rope_scaling", {{"type", "yarn"}, {"factor", 4}, {"truncate", false}}}});
  EXPECT_EQ(yarn.rope.type, "yarn");
  EXPECT_THAT(yarn.rope.numbers, UnorderedElementsAre(Pair("factor", 4.0), Pair("truncate", 0.0)));
  const ModelConfig longrope =
      ParseConfig({{"rope_parameters", {{"rope_type", "longrope"}, {"short_factor", {1.0, 2.5}}}}});
  EXPECT_THAT(longrope.rope.lists.at("short_factor"), ElementsAre(1.0, 2.5));
  EXPECT_THAT(ConfigError({{"rope_parameters", {{"factor", "four"}}}}),
              HasSubstr("rope_parameters.factor: expected a number or a list of numbers, got \"four\""));
}

// Each would be served and answer nothing, or nonsense.
TEST(ConfigRope, RefusesNumbersThatNothingCanBeTurnedBy) {
  const auto error_of = [](const Json& rope) { return ConfigError({{"rope_parameters", rope}}); };
  const auto with = [](const char* type, const Json& more) {
    Json rope = {{"rope_type", type}, {"factor", 8.0}, {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}};
    rope.update(more);
    return rope;
  };
  for (const char* type : {"linear", "dynamic", "llama3", "yarn", "longrope"}) {
    EXPECT_NO_THROW((void)ParseConfig({{"rope_parameters", with(type, Json::object())}})) << type;
    for (const Json& factor : {Json(0), Json(0.5), Json(-8), Json("8"), Json(Json::array({8.0})), Json(true)}) {
      EXPECT_EQ(error_of(with(type, {{"factor", factor}})),
                "config.json: rope_parameters.factor: expected a number of at least 1, got " + factor.dump())
          << type;
    }
  }
  for (const char* type : {"linear", "dynamic", "llama3"}) {
    EXPECT_EQ(error_of({{"rope_type", type}}),
              "config.json: rope_parameters.factor is missing, which rope type '" + std::string(type) + "' needs");
  }
  EXPECT_EQ(error_of(with("llama3", {{"low_freq_factor", nullptr}})),
            "config.json: rope_parameters.low_freq_factor is missing, which rope type 'llama3' needs");
  EXPECT_EQ(error_of(with("llama3", {{"low_freq_factor", 0}})),
            "config.json: rope_parameters.low_freq_factor: expected a number above 0, got 0");
  EXPECT_EQ(error_of(with("llama3", {{"low_freq_factor", 4}})),
            "config.json: rope_parameters.high_freq_factor: expected a number above low_freq_factor 4.0, got 4.0");
  for (const char* type : {"llama3", "yarn", "longrope"}) {
    EXPECT_EQ(error_of(with(type, {{"original_max_position_embeddings", 0}})),
              "config.json: rope_parameters.original_max_position_embeddings: expected a number of at least 1, got 0");
    EXPECT_EQ(ConfigError({{"rope_scaling", with(type, Json::object())}, {"original_max_position_embeddings", 0}}),
              "config.json: original_max_position_embeddings: expected a number of at least 1, got 0");
  }
}

TEST(ConfigRope, RefusesWhatYarnCannotBeMadeOf) {
  const auto error_of = [](const Json& more) {
    Json rope = {{"rope_type", "yarn"}, {"factor", 8.0}};
    rope.update(more);
    return ConfigError({{"rope_parameters", rope}});
  };
  EXPECT_EQ(error_of({{"attention_factor", 0}}),
            "config.json: rope_parameters.attention_factor: expected a number above 0, got 0");
  for (const std::string name : {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}) {
    EXPECT_EQ(error_of({{name, -1}}),
              "config.json: rope_parameters." + name + ": expected a number of at least 0, got -1");
  }
  EXPECT_EQ(error_of({{"beta_fast", 0}, {"beta_slow", 33}}),
            "config.json: rope_parameters.beta_slow: expected at most beta_fast 32.0, got 33.0");
  EXPECT_EQ(error_of({{"rope_theta", 1}}),
            "config.json: rope_parameters.rope_theta: expected a number above 1 for rope type 'yarn', got 1.0");
  EXPECT_EQ(error_of({{"factor", nullptr}, {"original_max_position_embeddings", 4096}}),
            "config.json: max_position_embeddings 2048 is less than original_max_position_embeddings 4096.0, and rope "
            "type 'yarn' has no factor");
}

TEST(ConfigRope, RefusesThetasAndPartsOfAHeadThatCannotBe) {
  const auto error_of = [](const Json& rope) { return ConfigError({{"rope_parameters", rope}}); };
  EXPECT_EQ(error_of({{"rope_theta", 0}}), "config.json: rope_parameters.rope_theta: expected a number above 0, got 0");
  EXPECT_EQ(error_of({{"rope_theta", {1e4}}}),
            "config.json: rope_parameters.rope_theta: expected a number above 0, got [10000.0]");
  EXPECT_EQ(error_of({{"partial_rotary_factor", 1.5}}),
            "config.json: rope_parameters.partial_rotary_factor: expected a number above 0 and at most 1, got 1.5");
  EXPECT_EQ(ConfigError({{"partial_rotary_factor", 1.5}}),
            "config.json: partial_rotary_factor: expected a number above 0 and at most 1, got 1.5");
  EXPECT_EQ(error_of({{"partial_rotary_factor", {0.5}}}),
            "config.json: rope_parameters.partial_rotary_factor: expected a number above 0, got [0.5]");
  EXPECT_EQ(error_of({1}), "config.json: rope_parameters: expected an object, got [1]");
  const Json sliding = {{"rope_type", "linear"}, {"factor", 0.5}};
  EXPECT_EQ(error_of({{"full_attention", {{"rope_type", "default"}}}, {"sliding_attention", sliding}}),
            "config.json: rope_parameters.sliding_attention.factor: expected a number of at least 1, got 0.5");
  EXPECT_EQ(ConfigError({{"text_config", testing::ConfigWith({{"rope_parameters", sliding}})}}),
            "config.json: text_config.rope_parameters.factor: expected a number of at least 1, got 0.5");
}

// As vLLM derives it.
TEST(ConfigRope, MakesTheContextLengthOfTheRope) {
  const auto length_with = [](const Json& rope, const char* model_type = "llama") {
    return ParseConfig({{"model_type", model_type}, {"max_position_embeddings", 4096}, {"rope_scaling", rope}})
        .ContextLength();
  };
  EXPECT_EQ(length_with(nullptr), 4096);
  EXPECT_EQ(length_with({{"rope_type", "default"}, {"factor", 8.0}}), 4096);
  EXPECT_EQ(length_with({{"rope_type", "linear"}, {"factor", 2.5}}), 10240);
  // As READMEs have it switched on, and as it is published: max_position_embeddings is the one length or the other.
  EXPECT_EQ(length_with({{"rope_type", "yarn"}, {"factor", 4.0}}), 16384);
  EXPECT_EQ(length_with({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}), 16384);
  EXPECT_EQ(length_with({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}}), 4096);
  EXPECT_EQ(length_with({{"rope_type", "yarn"}, {"original_max_position_embeddings", 1000}}), 4096);
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 512}};
  EXPECT_EQ(length_with(llama3), 4096);
  EXPECT_EQ(length_with({{"rope_type", "longrope"}, {"factor", 8.0}, {"original_max_position_embeddings", 512}}), 4096);
  EXPECT_EQ(length_with({{"rope_type", "dynamic"}, {"factor", 8.0}}), 4096);  // transformers' own: see MakeRope
  EXPECT_EQ(length_with({{"rope_type", "linear"}, {"factor", 1e300}}), 0x7FFFFFFF);
  EXPECT_EQ(length_with({{"rope_type", "linear"}, {"factor", 8.0}}, "gemma3_text"), 4096);
  const ModelConfig gpt_oss = ParseConfig({{"model_type", "gpt_oss"}, {"num_key_value_heads", 4}});
  EXPECT_EQ(gpt_oss.ContextLength(), 131072);
}

TEST(ConfigRope, TakesWhatIsWrittenBesideTheRope) {
  const Json yarn = {{"rope_type", "yarn"}, {"original_max_position_embeddings", 64}};
  const ModelConfig outer = ParseConfig({{"rope_parameters", yarn}, {"original_max_position_embeddings", 32}});
  EXPECT_EQ(outer.rope.numbers.at("original_max_position_embeddings"), 32.0);
  EXPECT_EQ(ParseConfig({{"partial_rotary_factor", 0.5}}).rope.numbers.at("partial_rotary_factor"), 0.5);
  const Json half = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(ParseConfig({{"rope_parameters", half}, {"partial_rotary_factor", 0.25}})
                .rope.numbers.at("partial_rotary_factor"),
            0.5);
  const Json types = {"sliding_attention", "full_attention", "sliding_attention"};
  const Json ropes = {{"full_attention", yarn}, {"sliding_attention", {{"rope_type", "yarn"}}}};
  const ModelConfig nested = ParseConfig({{"layer_types", types},
                                          {"sliding_window", 16},
                                          {"rope_parameters", ropes},
                                          {"original_max_position_embeddings", 32},
                                          {"partial_rotary_factor", 0.25}});
  EXPECT_THAT(nested.RopeOf(1).numbers, UnorderedElementsAre(Pair("original_max_position_embeddings", 64.0),
                                                             Pair("partial_rotary_factor", 0.25)));
  EXPECT_THAT(nested.RopeOf(0).numbers, ElementsAre(Pair("partial_rotary_factor", 0.25)));
  EXPECT_EQ(nested.rope, nested.RopeOf(1));
}

// As transformers does, but for a theta that would be lost.
TEST(ConfigRope, TakesARopeScalingThatSaysSomethingInThePlaceOfRopeParameters) {
  const Json parameters = {{"rope_type", "default"}, {"rope_theta", 1e6}};
  const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
  const auto rope_with = [&](const Json& scaling, const Json& more) {
    Json fields = {{"rope_parameters", parameters}, {"rope_scaling", scaling}};
    fields.update(more);
    return ParseConfig(fields).rope;
  };
  const RopeConfig both = rope_with(yarn, {{"rope_theta", 1e6}});
  EXPECT_EQ(both.type, "yarn");
  EXPECT_EQ(both.theta, 1e6);
  EXPECT_EQ(both.numbers.at("factor"), 4.0);
  for (const Json& nothing : {Json(nullptr), Json::object()}) {
    EXPECT_EQ(rope_with(nothing, Json::object()).type, "default");
    EXPECT_EQ(rope_with(nothing, Json::object()).theta, 1e6);
  }
  const std::string refusal =
      "config.json: rope_scaling.rope_theta: expected 1000000.0, as in rope_parameters, which rope_scaling takes the "
      "place of, got 10000.0";
  EXPECT_EQ(ConfigError({{"rope_parameters", parameters}, {"rope_scaling", yarn}}), refusal);
  EXPECT_EQ(ConfigError({{"rope_parameters", {{"full_attention", parameters}}}, {"rope_scaling", yarn}}), refusal);
}

TEST(ConfigRope, KnowsARopeForEachTypeOfLayer) {
  const Json types = {"sliding_attention", "full_attention", "sliding_attention"};
  const Json ropes = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  const ModelConfig config = ParseConfig({{"layer_types", types}, {"sliding_window", 16}, {"rope_parameters", ropes}});
  EXPECT_EQ(config.RopeOf(1).type, "linear");
  EXPECT_EQ(config.RopeOf(1).theta, 1e6);
  EXPECT_EQ(config.RopeOf(2).type, "default");
  EXPECT_EQ(config.RopeOf(2).theta, 1e4);
  EXPECT_EQ(config.rope, config.RopeOf(1));
  // The same in the words of older files.
  const ModelConfig old_one = ParseConfig({{"layer_types", types},
                                           {"sliding_window", 16},
                                           {"rope_theta", 1e6},
                                           {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}},
                                           {"rope_local_base_freq", 1e4}});
  EXPECT_EQ(old_one.ropes, config.ropes);
}

}  // namespace
}  // namespace layercast
