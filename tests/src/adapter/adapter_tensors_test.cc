#include "src/adapter/adapter_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/adapter/tied_factors.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

using Specs = std::vector<TensorSpec>;

AdapterConfig Configured(const std::string& fields) {
  return AdapterConfig::FromJson(R"({"peft_type": "LORA")" + (fields.empty() ? "" : ", " + fields) + "}");
}

void AddLinear(Specs& specs, const std::string& path, std::int64_t rank, std::int64_t in, std::int64_t out) {
  specs.push_back({"base_model.model." + path + ".lora_A.weight", DType::kF32, {rank, in}});
  specs.push_back({"base_model.model." + path + ".lora_B.weight", DType::kF32, {out, rank}});
}

Specs Linear(const std::string& path, std::int64_t rank = 8, std::int64_t in = 64, std::int64_t out = 32) {
  Specs specs;
  AddLinear(specs, path, rank, in, out);
  return specs;
}

std::string WhyRefused(const Specs& specs, const AdapterConfig& config, ErrorCode code) {
  return testing::ErrorOf([&] { (void)ReadAdapterTensors(specs, config); }, code);
}

// ---- modules
// ----------------------------------------------------------------------------------------------------------

TEST(AdapterTensors, AreModulesWithRankAndScale) {
  Specs specs;
  AddLinear(specs, "model.layers.10.self_attn.q_proj", 8, 64, 64);
  AddLinear(specs, "model.layers.2.self_attn.v_proj", 4, 64, 32);
  specs[1].dtype = DType::kBF16;  // mixed is normal
  specs.push_back({"base_model.model.model.embed_tokens.lora_embedding_B", DType::kF16, {64, 8}});
  specs.push_back({"base_model.model.model.embed_tokens.lora_embedding_A", DType::kF16, {8, 100}});
  specs.push_back({"base_model.model.model.embed_tokens.base_layer.weight", DType::kF64, {100, 64}});
  const AdapterTensors read =
      ReadAdapterTensors(specs, Configured(R"("lora_alpha": 16, "rank_pattern": {"v_proj": 4})"));
  ASSERT_EQ(read.modules.size(), 3U);
  const AdapterModule& embedding = read.modules[0];
  EXPECT_EQ(embedding.path, "model.embed_tokens");
  EXPECT_TRUE(embedding.embedding);
  EXPECT_EQ(embedding.a, 5U);
  EXPECT_EQ(embedding.b, 4U);
  EXPECT_EQ(read.modules[1].path, "model.layers.2.self_attn.v_proj") << "in natural order";
  EXPECT_EQ(read.modules[1].rank, 4);
  EXPECT_EQ(read.modules[1].scale, 4.0F);
  EXPECT_EQ(read.modules[2].path, "model.layers.10.self_attn.q_proj");
  EXPECT_EQ(read.modules[2].rank, 8);
  EXPECT_EQ(read.modules[2].scale, 2.0F);
  EXPECT_EQ(read.modules[2].a, 0U);
  EXPECT_EQ(read.modules[2].b, 1U);
  EXPECT_EQ(read.modules[2].experts, 0);
  EXPECT_THAT(read.copies, ElementsAre(AdapterTensors::Copy{"model.embed_tokens", 6}));
  EXPECT_THAT(read.warnings, IsEmpty());
}

TEST(AdapterTensors, AreTheSameUnderEachSpellingOfTheirNames) {
  const AdapterTensors saved = ReadAdapterTensors(Linear("model.layers.0.mlp.up_proj"), Configured(""));
  const Specs plain = {{"model.layers.0.mlp.up_proj.lora_A.weight", DType::kF32, {8, 64}},
                       {"model.layers.0.mlp.up_proj.lora_B.weight", DType::kF32, {32, 8}}};
  const Specs named = {{"base_model.model.model.layers.0.mlp.up_proj.lora_A.default.weight", DType::kF32, {8, 64}},
                       {"base_model.model.model.layers.0.mlp.up_proj.lora_B.default.weight", DType::kF32, {32, 8}}};
  EXPECT_EQ(ReadAdapterTensors(plain, Configured("")).modules, saved.modules);
  EXPECT_EQ(ReadAdapterTensors(named, Configured("")).modules, saved.modules);
}

TEST(AdapterTensors, RefuseRanksThatAreNotTheConfigurations) {
  const std::string eight = WhyRefused(Linear("m.q_proj", 8), Configured(R"("r": 4)"), ErrorCode::kInvalidArgument);
  EXPECT_THAT(eight, HasSubstr("m.q_proj: expected rank 4"));
  EXPECT_THAT(eight, HasSubstr("m.q_proj.lora_A.weight' [8, 64]"));
  EXPECT_THAT(WhyRefused(Linear("m.q_proj", 4), Configured(R"("r": 8)"), ErrorCode::kInvalidArgument),
              HasSubstr("expected rank 8"));
  Specs transposed = Linear("m.q_proj");
  transposed[0].shape = {64, 8};
  EXPECT_THAT(WhyRefused(transposed, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("equal ranks"));
  Specs unequal = Linear("m.q_proj");
  unequal[1].shape = {32, 4};
  EXPECT_THAT(WhyRefused(unequal, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("equal ranks"));
}

TEST(AdapterTensors, RefuseOneFactorWithoutTheOther) {
  Specs specs = Linear("m.q_proj");
  AddLinear(specs, "m.k_proj", 8, 64, 32);
  specs.pop_back();
  EXPECT_THAT(
      WhyRefused(specs, Configured(""), ErrorCode::kInvalidArgument),
      HasSubstr("m.k_proj: expected two factors, got 'base_model.model.m.k_proj.lora_A.weight' without lora_B"));
  const Specs only_b = {{"m.embed_tokens.lora_embedding_B", DType::kF32, {64, 8}}};
  EXPECT_THAT(WhyRefused(only_b, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("without lora_embedding_A"));
}

TEST(AdapterTensors, RefuseTensorsThatAreNoFactorsOfPeft) {
  EXPECT_THAT(WhyRefused({}, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("at least one module"));
  Specs specs = Linear("m.q_proj");
  specs.push_back({"m.q_proj.lora_magnitude_vector", DType::kF32, {32}});
  EXPECT_THAT(WhyRefused(specs, Configured(""), ErrorCode::kUnsupported), HasSubstr("use_dora"));
  specs = Linear("m.q_proj");
  specs[0].dtype = DType::kI8;
  EXPECT_THAT(WhyRefused(specs, Configured(""), ErrorCode::kUnsupported), HasSubstr("expected f32, bf16 or f16"));
  specs = Linear("m.q_proj");
  specs[0].shape = {8, 8, 8};
  EXPECT_THAT(WhyRefused(specs, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("expected two dimensions"));
  specs = Linear("m.q_proj");
  specs.push_back({"m.q_proj.lora_A.weight", DType::kF32, {8, 64}});
  EXPECT_THAT(WhyRefused(specs, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("the same factor as"));
  specs = Linear("m.q_proj");
  specs.push_back({"m.q_proj.lora_embedding_A", DType::kF32, {8, 64}});
  EXPECT_THAT(WhyRefused(specs, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("factors of one kind"));
  EXPECT_THAT(WhyRefused({{"m.q_proj.base_layer.lora_A.weight", DType::kF32, {8, 64}},
                          {"m.q_proj.base_layer.lora_B.weight", DType::kF32, {32, 8}}},
                         Configured(""), ErrorCode::kInvalidArgument),
              HasSubstr("expected one wrapper"));
}

TEST(AdapterTensors, ASurveyListsEachProblemOnce) {
  Specs specs = Linear("m.q_proj", 4);
  AddLinear(specs, "m.k_proj", 8, 64, 32);
  specs.push_back({"lm_head.weight", DType::kF32, {10, 10}});
  specs[1].shape = {4};
  const AdapterTensors survey = SurveyAdapter(specs, Configured(""));
  EXPECT_EQ(survey.modules.size(), 1U);
  ASSERT_EQ(survey.problems.size(), 2U);
  EXPECT_THAT(survey.problems[0].message, HasSubstr("two dimensions"));
  EXPECT_THAT(survey.problems[1].message, HasSubstr("lm_head.weight"));
  EXPECT_THAT(WhyRefused(specs, Configured(""), ErrorCode::kInvalidArgument), HasSubstr("(and 1 more problem)"));
}

// ---- beside the configuration
// -------------------------------------------------------------------------------------------

TEST(AdapterTensors, ModulesThatAreNotTargetedAreServedWithAWarning) {
  Specs specs = Linear("m.layers.0.q_proj");
  AddLinear(specs, "m.layers.0.k_proj", 8, 64, 32);
  const AdapterTensors read = ReadAdapterTensors(specs, Configured(R"("target_modules": ["q_proj", "zz_proj"])"));
  EXPECT_EQ(read.modules.size(), 2U);
  ASSERT_EQ(read.warnings.size(), 1U);
  EXPECT_THAT(read.warnings[0], HasSubstr("1 of 2 modules are not among the target_modules, 'm.layers.0.k_proj'"));
  EXPECT_THAT(read.unused, ElementsAre("zz_proj"));
  const auto warnings = [&](const std::string& fields) {
    return ReadAdapterTensors(specs, Configured(fields)).warnings;
  };
  EXPECT_THAT(warnings(R"("target_modules": ["m.layers.0.q_proj", "layers.0.k_proj"])"), IsEmpty());
  EXPECT_THAT(warnings(R"("target_modules": "all-linear")"), IsEmpty());
  EXPECT_THAT(warnings(""), IsEmpty());
  EXPECT_THAT(warnings(R"("target_modules": ["proj", "q_proj", "_proj"])"), ElementsAre(HasSubstr("1 of 2")));
}

TEST(AdapterTensors, PatternsThatMatchNothingAreWarnedOf) {
  const AdapterTensors read = ReadAdapterTensors(
      Linear("m.q_proj"), Configured(R"("rank_pattern": {"zz": 4}, "alpha_pattern": {"q_proj": 1})"));
  EXPECT_THAT(read.warnings, ElementsAre("rank_pattern 'zz': matches no module"));
  EXPECT_EQ(read.modules.at(0).scale, 0.125F);
}

// ---- experts
// ------------------------------------------------------------------------------------------------------------

const std::string kExperts = "model.layers.0.mlp.experts";
const std::string kBoth = R"("target_parameters": ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"])";

// Qwen3-MoE of 4 experts, hidden 32, intermediate 24, as PEFT saves both parameters.
Specs BothStacks() {
  Specs specs;
  AddLinear(specs, kExperts + ".base_layer", 20, 32, 48);
  AddLinear(specs, kExperts, 12, 24, 32);
  return specs;
}

TEST(AdapterTensors, OfStackedExpertsTheInnerWrapperIsGateUp) {
  const AdapterTensors read = ReadAdapterTensors(
      BothStacks(), Configured(kBoth + R"(, "r": 3, "lora_alpha": 6, "rank_pattern": {"experts.gate_up_proj": 5},
                           "alpha_pattern": {"down_proj": 12}, "peft_version": "0.21.2")"));
  ASSERT_EQ(read.modules.size(), 2U);
  const AdapterModule& gate_up = read.modules[0];
  EXPECT_EQ(gate_up.path, kExperts);
  EXPECT_EQ(gate_up.parameter, "gate_up_proj");
  EXPECT_EQ(gate_up.pattern_path, kExperts + ".gate_up_proj");
  EXPECT_EQ(gate_up.wrapper, 1);
  EXPECT_EQ(gate_up.rank, 5);
  EXPECT_EQ(gate_up.experts, 4);
  EXPECT_EQ(gate_up.scale, 1.2F);
  const AdapterModule& down = read.modules[1];
  EXPECT_EQ(down.parameter, "down_proj");
  EXPECT_EQ(down.wrapper, 0);
  EXPECT_EQ(down.rank, 3);
  EXPECT_EQ(down.experts, 4);
  EXPECT_EQ(down.scale, 4.0F);
  EXPECT_THAT(read.warnings, IsEmpty());
  EXPECT_THAT(read.unused, IsEmpty());
}

TEST(AdapterTensors, OfOneTargetedParameterTheOneWrapperIsItsOwn) {
  for (const std::string parameter : {"gate_up_proj", "down_proj"}) {
    const AdapterTensors read = ReadAdapterTensors(
        Linear(kExperts, 20, 32, 48),
        Configured(R"("r": 5, "peft_version": "0.19.1", "target_parameters": ["mlp.experts.)" + parameter + "\"]"));
    ASSERT_EQ(read.modules.size(), 1U);
    EXPECT_EQ(read.modules[0].parameter, parameter);
    EXPECT_EQ(read.modules[0].experts, 4);
  }
}

TEST(AdapterTensors, RefuseWrappersThatTargetParametersDoNotExplain) {
  const auto why = [](const Specs& specs, const std::string& fields) {
    return WhyRefused(specs, Configured(fields), ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(why(Linear(kExperts, 20), ""), HasSubstr("in target_parameters, 0, got 1"));
  EXPECT_THAT(why(BothStacks(), R"("target_parameters": ["experts.down_proj"])"), HasSubstr(", 1, got 2"));
  EXPECT_THAT(why(Linear(kExperts, 24), kBoth), HasSubstr(", 2, got 1"));
  EXPECT_THAT(why(Linear(kExperts + ".base_layer", 24), kBoth), HasSubstr(", 2, got 0"));
  EXPECT_THAT(why(Linear(kExperts, 20), R"("target_parameters": ["experts.down_proj"], "r": 8)"),
              HasSubstr("a multiple of rank 8"));
  EXPECT_THAT(WhyRefused(Linear(kExperts, 24), Configured(R"("target_parameters": ["experts.gate_up_proj_bias"])"),
                         ErrorCode::kUnsupported),
              HasSubstr("expected gate_up_proj, up_proj or down_proj of experts, got 'gate_up_proj_bias'"));
}

TEST(AdapterTensors, OfSingleExpertsArePlain) {
  Specs specs = Linear(kExperts + ".3.w1");
  AddLinear(specs, "model.layers.0.mlp.shared_experts.up_proj", 8, 64, 32);
  const AdapterTensors read = ReadAdapterTensors(specs, Configured(R"("peft_version": "0.10.0")"));
  EXPECT_EQ(read.modules.at(0).experts, 0);
  EXPECT_EQ(read.modules.at(1).experts, 0);
}

TEST(AdapterTensors, ARouterThatIsTargetedAsAParameterIsMatchedAsOne) {
  const AdapterTensors read = ReadAdapterTensors(
      Linear("model.layers.0.mlp.gate", 2, 32, 4),
      Configured(R"("target_parameters": ["mlp.gate.weight"], "rank_pattern": {"gate": 4, "gate.weight": 2})"));
  EXPECT_EQ(read.modules.at(0).rank, 2);
  EXPECT_EQ(read.modules.at(0).pattern_path, "model.layers.0.mlp.gate.weight");
  EXPECT_THAT(read.modules.at(0).parameter, IsEmpty());
  EXPECT_THAT(read.unused, IsEmpty());
}

// Golden case 15: what PEFT saves of Mixtral with `all-linear`, r 2 and alpha 8, under transformers 5.
TEST(AdapterTensors, Case15AllLinearOfMixtralHasOneScale) {
  Specs specs;
  AddLinear(specs, kExperts + ".base_layer", 16, 32, 48);
  AddLinear(specs, kExperts, 8, 24, 32);
  AddLinear(specs, "model.layers.0.mlp.gate", 2, 32, 4);
  AddLinear(specs, "model.layers.0.self_attn.q_proj", 2, 32, 32);
  const AdapterTensors read = ReadAdapterTensors(
      specs, Configured(R"("r": 2, "lora_alpha": 8, "peft_version": "0.21.2", "rank_pattern": {".*\\.gate_up_proj": 4},
                           "alpha_pattern": {".*\\.gate_up_proj": 16}, "target_modules": ["q_proj"],
                           "target_parameters": ["gate_up_proj", "gate.weight", "down_proj"])"));
  std::map<std::string, std::int64_t> ranks;
  for (const AdapterModule& module : read.modules) {
    EXPECT_EQ(module.scale, 4.0F) << module.pattern_path;
    ranks[module.pattern_path] = module.rank;
  }
  EXPECT_THAT(ranks,
              ElementsAre(Pair(kExperts + ".down_proj", 2), Pair(kExperts + ".gate_up_proj", 4),
                          Pair("model.layers.0.mlp.gate.weight", 2), Pair("model.layers.0.self_attn.q_proj", 2)));
  EXPECT_THAT(read.warnings, IsEmpty());
  EXPECT_THAT(read.unused, IsEmpty());
}

TEST(AdapterTensors, StacksOfBeforePeft0191AreRefusedWithBothReadings) {
  const auto refused = [](const std::string& version) {
    return WhyRefused(BothStacks(), Configured(kBoth + R"(, "r": 4, "peft_version": ")" + version + "\""),
                      ErrorCode::kUnsupported);
  };
  for (const std::string version : {"0.18.1", "0.17.0", "0.19.0", "0.19.1.dev0", "0.19.1rc1", "0.19", "0.19.0@main"}) {
    const std::string why = refused(version);
    EXPECT_THAT(why, HasSubstr("'" + version + "'")) << version;
    EXPECT_THAT(why, HasSubstr("A [experts * r, in] and B [out, r * experts]"));
    EXPECT_THAT(why, HasSubstr("A [experts * r, out] and B [in, r * experts]"));
  }
  for (const std::string version : {"0.19.1", "0.19.2.dev0@UNKNOWN", "0.19.1.post1", "0.21.2", "1.0", "", "UNKNOWN"}) {
    EXPECT_EQ(refused(version), "no error") << version;
  }
}

TEST(AdapterTensors, StacksOfAnUnknownWriterAreReadWhereTheShapesSayHow) {
  const auto check = [](const std::string& version, const StackSizes& base, ErrorCode code) {
    const AdapterConfig config =
        Configured(R"("r": 5, "target_parameters": ["experts.gate_up_proj"], "peft_version": ")" + version + "\"");
    const Specs specs = Linear(kExperts, 20, 32, 48);
    const AdapterTensors read = ReadAdapterTensors(specs, config);
    return testing::ErrorOf([&] { CheckStack(read.modules.at(0), specs, config, base); }, code);
  };
  EXPECT_EQ(check("", {4, 32, 48}, ErrorCode::kUnsupported), "no error");
  EXPECT_EQ(check("0.21.2", {4, 32, 48}, ErrorCode::kUnsupported), "no error");
  EXPECT_THAT(check("", {4, 48, 32}, ErrorCode::kUnsupported), HasSubstr("got none: before, PEFT wrote"));
  EXPECT_THAT(check("0.21.2", {4, 48, 32}, ErrorCode::kInvalidArgument),
              HasSubstr("expected A [20, 48] and B [32, 20], got [20, 32] and [48, 20]"));
  EXPECT_THAT(check("", {2, 32, 48}, ErrorCode::kInvalidArgument), HasSubstr("expected A [10, 32]"));
  // hidden == 2 * intermediate: both readings fit.
  const AdapterConfig config = Configured(R"("r": 5, "target_parameters": ["experts.gate_up_proj"])");
  const Specs square = Linear(kExperts, 20, 32, 32);
  const AdapterTensors read = ReadAdapterTensors(square, config);
  EXPECT_THAT(
      testing::ErrorOf([&] { CheckStack(read.modules.at(0), square, config, {4, 32, 32}); }, ErrorCode::kUnsupported),
      HasSubstr("got none"));
}

// ---- tied factors
// -------------------------------------------------------------------------------------------------------

struct Tied {
  Specs specs = {{"m.embed_tokens.lora_embedding_A", DType::kF32, {2, 3}},
                 {"m.embed_tokens.lora_embedding_B", DType::kF32, {4, 2}},
                 {"lm_head.lora_A.weight", DType::kF32, {2, 4}},
                 {"lm_head.lora_B.weight", DType::kF32, {3, 2}}};
  std::vector<std::vector<float>> values = {
      {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 3, 5, 7, 2, 4, 6, 8}, {1, 4, 2, 5, 3, 6}};

  std::string Check(const std::string& fields) const {
    const AdapterConfig config = Configured(R"("r": 2, )" + fields);
    return testing::ErrorOf(
        [&] {
          const AdapterTensors tensors = ReadAdapterTensors(specs, config);
          CheckTiedFactors(tensors, config, [&](std::uint32_t index) {
            return NamedTensor{.name = specs[index].name,
                               .tensor = {.dtype = specs[index].dtype,
                                          .shape = specs[index].shape,
                                          .data = reinterpret_cast<const std::byte*>(values[index].data())}};
          });
        },
        ErrorCode::kUnsupported);
  }
};

TEST(TiedFactors, AreEachOthersTransposed) {
  const std::string tied = R"("ensure_weight_tying": true)";
  Tied factors;
  EXPECT_EQ(factors.Check(tied), "no error");
  factors.values[3][1] = 9;
  EXPECT_THAT(factors.Check(tied),
              HasSubstr("expected 'lm_head.lora_B.weight' to be 'm.embed_tokens.lora_embedding_A'"));
  EXPECT_EQ(factors.Check(R"("ensure_weight_tying": false)"), "no error");
  factors.specs[3].shape = {4, 2};
  EXPECT_THAT(factors.Check(tied),
              HasSubstr("ensure_weight_tying: expected the factors of m.embed_tokens, transposed"));
  factors.specs.erase(factors.specs.begin() + 2, factors.specs.end());
  EXPECT_EQ(factors.Check(tied), "no error") << "an embedding alone has nothing to be equal to";
}

}  // namespace
}  // namespace layercast
