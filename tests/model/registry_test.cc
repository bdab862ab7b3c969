#include "layercast/model/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "layercast/error.h"
#include "layercast/model/decoder.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSizes = R"("vocab_size": 100, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "torch_dtype": "bfloat16")";

ModelConfig Config(const std::string& architecture, const std::string& more = "") {
  return ModelConfig::Parse("{\"architectures\": [\"" + architecture + "\"], " + kSizes + more + "}");
}

// All parameters of a tree, by full name.
void Collect(const Module& module, const std::string& path, std::map<std::string, std::string>& out) {
  for (const Parameter& parameter : module.parameters()) {
    EXPECT_TRUE(parameter.on_meta());
    out[path + parameter.spec.name] = Describe(parameter.spec);
  }
  for (const auto& [name, child] : module.children()) Collect(*child, path + name + ".", out);
}

std::map<std::string, std::string> ParametersOf(const ModelConfig& config, ParallelConfig parallel = {}) {
  std::map<std::string, std::string> parameters;
  Collect(*ModelRegistry::Builtin().Build(config, parallel), "", parameters);
  return parameters;
}

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Llama, HasTheParametersOfItsFamily) {
  const auto parameters = ParametersOf(Config("LlamaForCausalLM"));
  EXPECT_EQ(parameters.size(), 3U + 2 * 6);
  EXPECT_EQ(parameters.at("model.embed_tokens.weight"), "[128, 16] bf16");
  EXPECT_EQ(parameters.at("lm_head.weight"), "[128, 16] bf16");
  EXPECT_EQ(parameters.at("model.norm.weight"), "[16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.input_layernorm.weight"), "[16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.post_attention_layernorm.weight"), "[16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.self_attn.qkv_proj.weight"), "[48, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.self_attn.o_proj.weight"), "[16, 24] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.gate_up_proj.weight"), "[48, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.down_proj.weight"), "[16, 24] bf16");
}

TEST(Llama, HasBiasesWhereTheConfigurationSaysSo) {
  const auto parameters = ParametersOf(Config("LlamaForCausalLM", R"(, "attention_bias": true, "mlp_bias": true)"));
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.qkv_proj.bias"), "[48] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.o_proj.bias"), "[16] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.mlp.gate_up_proj.bias"), "[48] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.mlp.down_proj.bias"), "[16] bf16");
}

TEST(Qwen2, HasBiasesOnQueryKeyAndValueAlone) {
  const auto parameters = ParametersOf(Config("Qwen2ForCausalLM", R"(, "tie_word_embeddings": true)"));
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.qkv_proj.bias"), "[48] bf16");
  EXPECT_FALSE(parameters.contains("model.layers.0.self_attn.o_proj.bias"));
  EXPECT_FALSE(parameters.contains("model.layers.0.mlp.gate_up_proj.bias"));
  EXPECT_FALSE(parameters.contains("lm_head.weight"));
}

TEST(Qwen3, NormalizesQueriesAndKeys) {
  const auto parameters = ParametersOf(Config("Qwen3ForCausalLM"));
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.q_norm.weight"), "[6] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.k_norm.weight"), "[6] bf16");
  EXPECT_FALSE(parameters.contains("model.layers.0.self_attn.qkv_proj.bias"));
}

TEST(Families, HoldTheirPartOnEachRank) {
  const auto parameters = ParametersOf(Config("Qwen3ForCausalLM"), {3, 4});
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.qkv_proj.weight"), "[18, 16] bf16");  // 1 + 1 + 1 heads of 6
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.o_proj.weight"), "[16, 6] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.q_norm.weight"), "[6] bf16");
  EXPECT_EQ(parameters.at("model.embed_tokens.weight"), "[32, 16] bf16");
  EXPECT_EQ(ErrorOf([] { (void)ParametersOf(Config("LlamaForCausalLM"), {0, 3}); }),
            "num_attention_heads 4 is not divisible by tp_size 3");
  EXPECT_EQ(ErrorOf([] {
              const std::string wide = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 64,
                "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 16})";
              (void)ParametersOf(ModelConfig::Parse(wide), {0, 16});
            }),
            "intermediate_size 24 is not divisible by tp_size 16");
}

TEST(ModelRegistry, ListsTheKnownOnesToAnUnknownOne) {
  EXPECT_EQ(ErrorOf([] { (void)ParametersOf(Config("MambaForCausalLM")); }),
            "Model architectures [MambaForCausalLM] are not supported for now. Supported architectures: "
            "LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM");
  ModelConfig nameless = Config("LlamaForCausalLM");
  nameless.architectures.clear();
  EXPECT_THAT(ErrorOf([&] { (void)ParametersOf(nameless); }), HasSubstr("No model architectures are specified"));
}

TEST(ModelRegistry, TakesTheFirstArchitectureThatIsKnown) {
  ModelConfig config = Config("LlamaForCausalLM");
  config.architectures = {"MyLlamaWithAValueHead", "LlamaForCausalLM"};
  EXPECT_EQ(ModelRegistry::Builtin().Build(config, {})->class_name(), "LlamaForCausalLM");
}

// A family as a host program adds it: from the public headers alone, with a field of its own.
std::unique_ptr<Module> BuildMine(const ModelConfig& config, const ParallelConfig& parallel, DType dtype) {
  const LayerContext context{parallel, dtype, true};
  return std::make_unique<DecoderForCausalLM>("MineForCausalLM", context, config, [&](std::int64_t index) {
    auto attention = std::make_unique<Attention>(context, config, AttentionOptions{.qkv_bias = index == 0});
    return std::make_unique<DecoderLayer>(context, config, std::move(attention),
                                          std::make_unique<GatedMlp>(context, config, false));
  });
}

TEST(ModelRegistry, TakesAFamilyOfTheHostProgram) {
  ModelRegistry registry = ModelRegistry::Builtin();
  registry.Register("MineForCausalLM", BuildMine);
  EXPECT_THAT(registry.architectures(),
              ElementsAre("LlamaForCausalLM", "MineForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"));
  const auto model = registry.Build(Config("MineForCausalLM"), {});
  std::map<std::string, std::string> parameters;
  Collect(*model, "", parameters);
  EXPECT_TRUE(parameters.contains("model.layers.0.self_attn.qkv_proj.bias"));
  EXPECT_FALSE(parameters.contains("model.layers.1.self_attn.qkv_proj.bias"));
  EXPECT_THAT(ModelRegistry::Builtin().architectures(), ::testing::Not(::testing::Contains("MineForCausalLM")));
}

TEST(ModelRegistry, RefusesANameThatIsTaken) {
  ModelRegistry registry = ModelRegistry::Builtin();
  EXPECT_EQ(ErrorOf([&] { registry.Register("LlamaForCausalLM", BuildMine); }),
            "Model architecture LlamaForCausalLM already registered");
}

}  // namespace
}  // namespace layercast
