#include "layercast/adapter_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

AdapterConfig Config(const std::string& fields) {
  return AdapterConfig::FromJson(R"({"peft_type": "LORA")" + (fields.empty() ? "" : ", " + fields) + "}");
}

std::string WhyRefused(const std::string& fields, ErrorCode code) {
  return testing::ErrorOf([&] { (void)Config(fields); }, code);
}

std::string Path(int layer, const std::string& module) {
  return "model.layers." + std::to_string(layer) + "." + module;
}

// ---- scales: golden cases, computed with PEFT -----------------------------------------------------------------------

TEST(AdapterConfig, HasPeftsDefaults) {
  const AdapterConfig config = Config("");
  EXPECT_EQ(config, AdapterConfig{});
  EXPECT_EQ(config.RankOf("model.layers.0.mlp.up_proj"), 8);
  EXPECT_EQ(config.ScaleOf("model.layers.0.mlp.up_proj"), 1.0F);
}

TEST(AdapterConfig, ScalesAreAlphaByRankOrByItsRoot) {
  const std::string q = Path(0, "self_attn.q_proj");
  const std::string k = Path(0, "self_attn.k_proj");
  EXPECT_EQ(Config(R"("r": 8, "lora_alpha": 16)").ScaleOf(q), 2.0F);
  EXPECT_EQ(Config(R"("r": 16, "lora_alpha": 16, "use_rslora": true)").ScaleOf(q), 4.0F);
  const AdapterConfig mixed = Config(R"("r": 16, "lora_alpha": 16, "use_rslora": true, "rank_pattern": {"k_proj": 4})");
  EXPECT_EQ(mixed.ScaleOf(q), 4.0F);
  EXPECT_EQ(mixed.ScaleOf(k), 8.0F);
  const float root = Config(R"("r": 2, "lora_alpha": 3, "use_rslora": true)").ScaleOf(q);
  EXPECT_EQ(root, static_cast<float>(3 / std::sqrt(2.0)));
  EXPECT_NEAR(root, 2.12132, 1e-5);
}

TEST(AdapterConfig, ScalesAreRoundedOnceFromADouble) {
  const AdapterConfig config = Config(R"("r": 16, "lora_alpha": 22.627416997969522, "use_rslora": true)");
  EXPECT_EQ(config.ScaleOf("m"), static_cast<float>(22.627416997969522 / 4.0));
  EXPECT_EQ(Config(R"("r": 3, "lora_alpha": 1)").ScaleOf("m"), static_cast<float>(1.0 / 3.0));
}

TEST(AdapterConfig, TheFirstPatternInFileOrderDecides) {
  const AdapterConfig config = Config(R"("r": 8, "lora_alpha": 16, "rank_pattern": {"q_proj": 4,
      "layers.1.self_attn.k_proj": 2, "^v_proj": 3, "self_attn.o_proj|mlp.down_proj": 16,
      ".*layers.0.mlp.up_proj": 32, "proj": 5},
      "alpha_pattern": {"layers.0.self_attn.q_proj": 32, "gate_proj": 1})");
  const std::map<std::string, std::pair<std::int64_t, float>> expected = {
      {Path(0, "self_attn.q_proj"), {4, 8.0F}},  {Path(1, "self_attn.q_proj"), {4, 4.0F}},
      {Path(0, "self_attn.k_proj"), {8, 2.0F}},  {Path(1, "self_attn.k_proj"), {2, 8.0F}},
      {Path(0, "self_attn.v_proj"), {8, 2.0F}},  {Path(1, "self_attn.v_proj"), {8, 2.0F}},
      {Path(0, "self_attn.o_proj"), {16, 1.0F}}, {Path(1, "mlp.down_proj"), {16, 1.0F}},
      {Path(0, "mlp.up_proj"), {32, 0.5F}},      {Path(1, "mlp.up_proj"), {8, 2.0F}},
      {Path(0, "mlp.gate_proj"), {8, 0.125F}}};
  std::vector<std::string> paths;
  for (const auto& [path, of] : expected) {
    EXPECT_EQ(config.RankOf(path), of.first) << path;
    EXPECT_EQ(config.ScaleOf(path), of.second) << path;
    paths.push_back(path);
  }
  EXPECT_THAT(config.UnusedPatterns(paths), ElementsAre("rank_pattern '^v_proj'", "rank_pattern 'proj'"));
  EXPECT_THAT(config.UnusedPatterns({}), ::testing::SizeIs(8));
  const AdapterConfig both = Config(R"("rank_pattern": {"q_proj": 4, ".*q_proj": 8})");
  EXPECT_EQ(both.RankOf(Path(0, "self_attn.q_proj")), 4);
  EXPECT_THAT(both.UnusedPatterns(paths), IsEmpty()) << "the second one matches too, though it never decides";
}

TEST(AdapterConfig, PatternsKeepTheFilesOrderWhateverTheAlphabets) {
  const AdapterConfig config =
      Config(R"("rank_pattern": {"z": 1, "a|z": 2, "m": 3}, "alpha_pattern": {"z": 4, "b": 5})");
  std::vector<std::string> keys;
  for (const auto& pattern : config.rank_pattern) keys.push_back(pattern.modules.key());
  EXPECT_THAT(keys, ElementsAre("z", "a|z", "m"));
  EXPECT_EQ(config.RankOf("z"), 1);
  EXPECT_EQ(config.alpha_pattern.at(1).lora_alpha, 5);
}

// ---- the table of fields
// ----------------------------------------------------------------------------------------------

TEST(AdapterConfig, ReadsWhatActs) {
  const AdapterConfig config = Config(R"("r": 4, "lora_alpha": 5.5, "use_rslora": true, "target_modules": ["v", "q"],
      "target_parameters": ["mlp.experts.down_proj"], "ensure_weight_tying": true,
      "base_model_name_or_path": "org/model", "peft_version": "0.21.2")");
  EXPECT_EQ(config.r, 4);
  EXPECT_EQ(config.lora_alpha, 5.5);
  EXPECT_TRUE(config.use_rslora);
  EXPECT_THAT(config.target_modules, ElementsAre("v", "q"));
  EXPECT_THAT(config.target_expression, IsEmpty());
  EXPECT_THAT(config.target_parameters, ElementsAre("mlp.experts.down_proj"));
  EXPECT_TRUE(config.ensure_weight_tying);
  EXPECT_EQ(config.base_model_name_or_path, "org/model");
  EXPECT_EQ(config.peft_version, "0.21.2");
  EXPECT_EQ(Config(R"("target_modules": "all-linear")").target_expression, "all-linear");
}

TEST(AdapterConfig, TakesWhatActsOnNothingHere) {
  for (const char* fields :
       {R"("peft_type": "LORA")",
        R"("bias": "none", "bias2": null)",
        R"("lora_dropout": 0.1)",
        R"("inference_mode": true)",
        R"("task_type": "CAUSAL_LM")",
        R"("revision": "main")",
        R"("auto_mapping": {"base_model_class": "X"})",
        R"("eva_config": {"rho": 2.0, "tau": NaN})",
        R"("corda_config": {"a": 1})",
        R"("loftq_config": {"loftq_bits": 4})",
        R"("lora_ga_config": {"direction": "ArB2r"})",
        R"("runtime_config": {"ephemeral_gpu_offload": false})",
        R"("qalora_group_size": 16)",
        R"("megatron_core": "megatron.core")",
        R"("fan_in_fan_out": true)",
        R"("exclude_modules": ["lm_head"])",
        R"("layers_to_transform": [1, 2])",
        R"("layers_pattern": "layers")",
        R"("r": null, "lora_alpha": null, "rank_pattern": null, "alpha_pattern": {}, "target_modules": null)",
        R"("init_lora_weights": true)",
        R"("init_lora_weights": false)",
        R"("init_lora_weights": "gaussian")",
        R"("init_lora_weights": "orthogonal")",
        R"("init_lora_weights": "eva")",
        R"("init_lora_weights": "mica")",
        R"("modules_to_save": null, "trainable_token_indices": null, "alora_invocation_tokens": null)",
        R"("modules_to_save": [], "layer_replication": [], "megatron_config": {}, "use_bdlora": null)",
        R"("use_dora": false, "lora_bias": false, "use_qalora": false)",
        R"("foo": null)",
        R"("foo": false)",
        R"("foo": "")",
        R"("foo": [])",
        R"("foo": {})"}) {
    const std::string text = std::string(fields).find("peft_type") != std::string::npos
                                 ? "{" + std::string(fields) + "}"
                                 : R"({"peft_type": "lora", )" + std::string(fields) + "}";
    EXPECT_EQ(AdapterConfig::FromJson(text), AdapterConfig{}) << text;
  }
}

TEST(AdapterConfig, AConvertedAdapterOfAMovedBasePasses) {
  const AdapterConfig config = Config(R"("init_lora_weights": true, "r": 16, "lora_alpha": 32)");
  EXPECT_EQ(config.ScaleOf("q_proj"), 2.0F);
}

TEST(AdapterConfig, RefusesOtherMethodsByFieldAndValue) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"use_dora", "true"},
      {"lora_bias", "true"},
      {"bias", R"("lora_only")"},
      {"bias", R"("all")"},
      {"modules_to_save", R"(["lm_head","embed_tokens"])"},
      {"trainable_token_indices", "[1,2]"},
      {"trainable_token_indices", R"({"embed_tokens":[0]})"},
      {"layer_replication", "[[0,4],[2,5]]"},
      {"alora_invocation_tokens", "[3]"},
      {"use_qalora", "true"},
      {"use_bdlora", R"({"nblocks":2})"},
      {"arrow_config", R"({"top_k":3})"},
      {"kasa_config", R"({"beta":1})"},
      {"monteclora_config", R"({"num_samples":8})"},
      {"velora_config", R"({"num_groups":8})"},
      {"megatron_config", R"({"tensor_model_parallel_size":1})"},
      {"foo", "true"},
      {"foo", "0"},
      {"foo", R"("x")"},
      {"foo", R"([0])"}};
  for (const auto& [field, value] : refused) {
    const std::string why = WhyRefused("\"" + field + "\": " + value, ErrorCode::kUnsupported);
    EXPECT_THAT(why, HasSubstr("adapter_config.json: " + field + ": expected ")) << value;
    EXPECT_THAT(why, HasSubstr("got " + value));
  }
  const std::string loha = testing::ErrorOf(
      [] { (void)AdapterConfig::FromJson(R"({"alpha": 8, "peft_type": "LOHA"})"); }, ErrorCode::kUnsupported);
  EXPECT_THAT(loha, HasSubstr(R"(peft_type: expected "LORA", got "LOHA")"));
}

TEST(AdapterConfig, RefusesMovedBasesWithTheRemedy) {
  for (const char* way : {"pissa", "pissa_niter_16", "olora", "corda", "lora_ga", "loftq", "PiSSA"}) {
    const std::string why = WhyRefused(R"("init_lora_weights": ")" + std::string(way) + "\"", ErrorCode::kUnsupported);
    EXPECT_THAT(why, HasSubstr("init_lora_weights: expected "));
    EXPECT_THAT(why, HasSubstr(way));
    EXPECT_THAT(why, HasSubstr("path_initial_model_for_weight_conversion"));
  }
  const std::string why = WhyRefused(R"("init_lora_weights": "tomorrows")", ErrorCode::kUnsupported);
  EXPECT_THAT(why, HasSubstr("tomorrows"));
  EXPECT_THAT(why, Not(HasSubstr("path_initial_model")));
}

TEST(AdapterConfig, RefusesMalformedValuesByFieldExpectedAndGot) {
  for (const auto& [fields, said] : std::vector<std::pair<std::string, std::string>>{
           {R"("r": 0)", "r: expected an integer from 1 to 2147483647, got 0"},
           {R"("r": 8.0)", "r: expected an integer"},
           {R"("r": -1)", "r: expected an integer"},
           {R"("r": "8")", "r: expected an integer"},
           {R"("r": true)", "r: expected an integer"},
           {R"("r": 4294967304)", "r: expected an integer"},
           {R"("r": 18446744073709551615)", "r: expected an integer"},
           {R"("lora_alpha": "16")", "lora_alpha: expected a number"},
           {R"("lora_alpha": 1e39)", "lora_alpha: expected a number that a float holds, got 1e+39"},
           {R"("lora_alpha": NaN)", "lora_alpha: expected a number that a float holds, got NaN"},
           {R"("use_rslora": 1)", "use_rslora: expected true or false, got 1"},
           {R"("ensure_weight_tying": "yes")", "ensure_weight_tying: expected true or false"},
           {R"("rank_pattern": [4])", "rank_pattern: expected an object of patterns, got [4]"},
           {R"("rank_pattern": {"q": 0})", "rank_pattern['q']: expected an integer from 1"},
           {R"("rank_pattern": {"(q": 1})", "rank_pattern: pattern '(q'"},
           {R"("alpha_pattern": {"q": "x"})", "alpha_pattern['q']: expected a number"},
           {R"("alpha_pattern": {"q": null})", "alpha_pattern['q']: expected a number"},
           {R"("target_modules": 3)", "target_modules: expected a list of texts, or a text, got 3"},
           {R"("target_modules": [3])", "target_modules: expected a list of texts, got [3]"},
           {R"("target_parameters": "experts")", "target_parameters: expected a list of texts"},
           {R"("base_model_name_or_path": 1)", "base_model_name_or_path: expected a text"},
           {R"("peft_version": 0.19)", "peft_version: expected a text, got 0.19"},
           {R"("bias": true)", "bias: expected a text"},
           {R"("init_lora_weights": 1)", "init_lora_weights: expected a text"},
           {R"("r": 8, "r": 8)", "the key 'r' is there twice"},
           {R"("rank_pattern": {"q": 1, "q": 1})", "the key 'q' of 'rank_pattern' is there twice"}}) {
    const std::string why = WhyRefused(fields, ErrorCode::kInvalidArgument);
    EXPECT_THAT(why, HasSubstr("adapter_config.json: " + said)) << fields;
  }
  EXPECT_THAT(WhyRefused(R"("rank_pattern": {"(?i)q": 1})", ErrorCode::kUnsupported),
              HasSubstr("adapter_config.json: rank_pattern: pattern '(?i)q': '(?i' at character 0"));
  for (const char* text : {"", "[]", "{", "{}", R"({"r": 8})", R"({"peft_type": null})",
                           "{\"peft_type\": \"LORA\"\xff}", R"({"peft_type": 3})"}) {
    EXPECT_THAT(testing::ErrorOf([&] { (void)AdapterConfig::FromJson(text); }, ErrorCode::kInvalidArgument),
                HasSubstr("adapter_config.json: "))
        << text;
  }
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  EXPECT_THAT(WhyRefused("\"eva_config\": " + deep, ErrorCode::kInvalidArgument), HasSubstr("nested more than"));
}

// ---- for digests
// ------------------------------------------------------------------------------------------------------

TEST(AdapterConfig, CanonicalIsWhatActsAndReadsBackAsThat) {
  const AdapterConfig config = Config(R"("r": 4, "lora_alpha": 6, "use_rslora": true, "lora_dropout": 0.5,
      "rank_pattern": {"z": 1, "a\\.b": 2}, "alpha_pattern": {"q": 3.5}, "target_modules": ["q", "v"],
      "base_model_name_or_path": "x", "peft_version": "0.21.2")");
  const std::string canonical = config.Canonical();
  EXPECT_EQ(canonical,
            R"({"alpha_pattern":{"q":3.5},"ensure_weight_tying":false,"lora_alpha":6.0,"peft_type":"LORA","r":4,)"
            R"("rank_pattern":{"z":1,"a\\.b":2},"target_parameters":[],"use_rslora":true})");
  EXPECT_EQ(AdapterConfig::FromJson(canonical).Canonical(), canonical);
}

TEST(AdapterConfig, CanonicalDiffersWhereTheMeaningDoes) {
  const auto canonical = [](const std::string& fields) { return Config(fields).Canonical(); };
  EXPECT_EQ(canonical(R"("target_modules": ["q", "v"], "lora_alpha": 8)"),
            canonical(R"("target_modules": ["v", "q"])"));
  EXPECT_EQ(canonical(R"("peft_version": "0.20.0")"), canonical(""));
  EXPECT_EQ(canonical(R"("target_parameters": ["b", "a"])"), canonical(R"("target_parameters": ["a", "b"])"));
  EXPECT_NE(canonical(R"("target_parameters": ["a"], "peft_version": "0.18.0")"),
            canonical(R"("target_parameters": ["a"])"));
  EXPECT_NE(canonical(R"("rank_pattern": {"a": 1, "b": 2})"), canonical(R"("rank_pattern": {"b": 2, "a": 1})"));
  EXPECT_NE(canonical(R"("r": 4)"), canonical(""));
  EXPECT_NE(canonical(R"("lora_alpha": 4)"), canonical(""));
  EXPECT_NE(canonical(R"("use_rslora": true)"), canonical(""));
}

TEST(AdapterConfig, MayBeMadeWithoutAFile) {
  const AdapterConfig config{.r = 16, .lora_alpha = 32, .rank_pattern = {{ModulePattern("k_proj"), 4}}};
  EXPECT_EQ(config.RankOf("model.layers.0.self_attn.k_proj"), 4);
  EXPECT_EQ(config.ScaleOf("model.layers.0.self_attn.k_proj"), 8.0F);
  EXPECT_EQ(AdapterConfig::FromJson(config.Canonical()), config);
}

}  // namespace
}  // namespace layercast
