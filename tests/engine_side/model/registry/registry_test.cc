#include "layercast/model/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "layercast/error.h"
#include "layercast/model/decoder.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;

constexpr const char* kModelSizes =
    R"("vocab_size": 100, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "torch_dtype": "bfloat16")";

ModelConfig Config(const std::string& architecture, const std::string& more = "") {
  return ModelConfig::Parse("{\"architectures\": [\"" + architecture + "\"], " + kModelSizes + more + "}");
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

TEST(Gemma2, NormalizesBeforeAndAfterEachBlock) {
  const auto parameters = ParametersOf(Config("Gemma2ForCausalLM", R"(, "model_type": "gemma2")"));
  for (const char* norm :
       {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    EXPECT_EQ(parameters.at("model.layers.1." + std::string(norm) + ".weight"), "[16] bf16");
  }
  EXPECT_FALSE(parameters.contains("model.layers.0.self_attn.q_norm.weight"));
  EXPECT_FALSE(parameters.contains("lm_head.weight"));  // tied unless the configuration says otherwise
}

TEST(Gemma3, NormalizesQueriesAndKeysToo) {
  const auto parameters = ParametersOf(Config("Gemma3ForCausalLM", R"(, "model_type": "gemma3_text")"));
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.q_norm.weight"), "[6] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.pre_feedforward_layernorm.weight"), "[16] bf16");
}

TEST(Gemma3, OfAVisionLanguageModelTakesBothFormsOfItsNames) {
  const ModelConfig config = Config("Gemma3ForConditionalGeneration", R"(, "model_type": "gemma3_text")");
  const auto model = ModelRegistry::Builtin().Build(config, {});
  for (const char* prefix : {"model.language_model.", "language_model.model.", "model."}) {
    const std::string name = std::string(prefix) + "layers.1.self_attn.k_proj.weight";
    EXPECT_EQ(model->Resolve({name, DType::kBF16, {12, 16}}).owner_path, "model.layers.1.self_attn.qkv_proj") << name;
  }
  for (const char* name : {"vision_tower.encoder.layers.0.mlp.fc1.weight", "model.multi_modal_projector.norm.weight"}) {
    EXPECT_EQ(model->Resolve({name, DType::kBF16, {3}}).skip_rule, "the vision tower is not served") << name;
  }
  EXPECT_EQ(model->Resolve({"language_model.lm_head.weight", DType::kBF16, {100, 16}}).alias_of,
            "model.embed_tokens.weight");
}

TEST(Mixtral, CallsItsExpertsByBothNames) {
  const ModelConfig config = Config("MixtralForCausalLM", R"(, "model_type": "mixtral", "num_local_experts": 4)");
  const auto parameters = ParametersOf(config, {1, 2});
  EXPECT_EQ(parameters.at("model.layers.0.block_sparse_moe.gate.weight"), "[4, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.block_sparse_moe.experts.w13_weight"), "[4, 24, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.block_sparse_moe.experts.w2_weight"), "[4, 16, 12] bf16");
  const auto model = ModelRegistry::Builtin().Build(config, {});
  for (const char* name : {"block_sparse_moe.experts.3.w1.weight", "mlp.experts.3.w1.weight"}) {
    EXPECT_EQ(model->Resolve({"model.layers.1." + std::string(name), DType::kBF16, {24, 16}}).owner_path,
              "model.layers.1.block_sparse_moe.experts");
  }
}

TEST(MiniMaxM2, TakesTheRoutingBiasFromBesideItsRouterAndSplitsItsNorms) {
  const ModelConfig config = Config("MiniMaxM2ForCausalLM", R"(, "model_type": "minimax_m2", "num_local_experts": 8,
    "rotary_dim": 4)");
  const auto parameters = ParametersOf(config, {1, 2});
  EXPECT_EQ(parameters.at("model.layers.0.block_sparse_moe.gate.e_score_correction_bias"), "[8] f32");
  const auto model = ModelRegistry::Builtin().Build(config, {});
  for (const char* name : {"block_sparse_moe", "mlp", "block_sparse_moe.gate"}) {
    const std::string tensor = "model.layers.1." + std::string(name) + ".e_score_correction_bias";
    EXPECT_EQ(model->Resolve({tensor, DType::kF32, {8}}).owner_path, "model.layers.1.block_sparse_moe.gate") << name;
  }
  EXPECT_EQ(model->Resolve({"model.layers.1.self_attn.q_norm.weight", DType::kBF16, {config.num_attention_heads * 6}})
                .owner->class_name(),
            "ParallelRMSNorm");
}

TEST(GptOss, SplitsSinksByHeadsAndGivesBiasesOnce) {
  const ModelConfig config = Config("GptOssForCausalLM", R"(, "model_type": "gpt_oss", "num_local_experts": 4)");
  const std::int64_t heads = config.num_attention_heads;
  const auto parameters = ParametersOf(config, {1, 2});
  EXPECT_EQ(parameters.at("model.layers.0.self_attn.sinks"), ToString(Shape{heads / 2}) + " bf16");
  EXPECT_EQ(parameters.at("model.layers.0.mlp.router.bias"), "[4] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.mlp.experts.w13_bias"), "[4, 24] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.mlp.experts.w2_bias"), "[4, 16] bf16");
  const auto second = ModelRegistry::Builtin().Build(config, {.tp_rank = 1, .tp_size = 2});
  const Resolution sinks = second->Resolve({"model.layers.0.self_attn.sinks", DType::kBF16, {heads}});
  EXPECT_EQ(sinks.pieces.at(0).source, Box::Slice({heads}, 0, heads / 2, heads / 2));
  const Resolution bias = second->Resolve({"model.layers.0.mlp.experts.down_proj_bias", DType::kBF16, {4, 16}});
  EXPECT_EQ(bias.pieces.at(0).source.num_elements(), 0);  // the first rank's
  EXPECT_EQ(second->Resolve({"model.layers.0.mlp.experts.gate_up_proj", DType::kBF16, {4, 16, 48}}).pieces.at(0).source,
            (Box{3, {0, 0, 24}, {4, 16, 24}}));
}

TEST(Qwen2Moe, HasASharedExpertAndDenseLayers) {
  const auto parameters = ParametersOf(Config("Qwen2MoeForCausalLM", R"(, "num_experts": 4, "mlp_only_layers": [0],
    "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 10)"));
  EXPECT_EQ(parameters.at("model.layers.0.mlp.gate_up_proj.weight"), "[48, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.experts.w13_weight"), "[4, 16, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.shared_expert.gate_up_proj.weight"), "[20, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.shared_expert_gate.weight"), "[1, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.self_attn.qkv_proj.bias"), "[48] bf16");
}

TEST(Glm4Moe, KeepsTheRoutingBiasInFp32AndSkipsDraftLayers) {
  const ModelConfig config = Config("Glm4MoeForCausalLM", R"(, "n_routed_experts": 4, "moe_intermediate_size": 8,
    "num_experts_per_tok": 2, "n_shared_experts": 2, "first_k_dense_replace": 1, "num_nextn_predict_layers": 2,
    "head_dim": 8)");
  const auto parameters = ParametersOf(config);
  EXPECT_EQ(parameters.at("model.layers.1.mlp.gate.e_score_correction_bias"), "[4] f32");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.shared_experts.down_proj.weight"), "[16, 16] bf16");
  EXPECT_FALSE(parameters.contains("model.layers.0.mlp.gate.weight"));
  const auto model = ModelRegistry::Builtin().Build(config, {});
  for (const char* name : {"model.layers.2.eh_proj.weight", "model.layers.3.mlp.experts.0.up_proj.weight"}) {
    EXPECT_THAT(model->Resolve({name, DType::kBF16, {16, 16}}).skip_rule, HasSubstr("draft layer"));
  }
  EXPECT_THROW((void)model->Resolve({"model.layers.4.eh_proj.weight", DType::kBF16, {16, 16}}), Error);
}

// As engines of the field hold them.
TEST(Families, SomeKeepTheirRoutersInFp32) {
  const auto parameters_of = [](const std::string& architecture, const std::string& own) {
    return ParametersOf(Config(architecture, R"(, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 8, "partial_rotary_factor": 1.0)" +
                                                 own));
  };
  const auto glm = parameters_of("Glm4MoeForCausalLM", R"(, "model_type": "glm4_moe")");
  EXPECT_EQ(glm.at("model.layers.1.mlp.gate.weight"), "[4, 16] f32");
  const auto minimax = parameters_of("MiniMaxM2ForCausalLM", R"(, "model_type": "minimax_m2")");
  EXPECT_EQ(minimax.at("model.layers.1.block_sparse_moe.gate.weight"), "[4, 16] f32");
  const auto nemotron =
      parameters_of("NemotronHForCausalLM", R"(, "model_type": "nemotron_h", "hybrid_override_pattern": "*E")");
  EXPECT_EQ(nemotron.at("model.layers.1.mixer.gate.weight"), "[4, 16] f32");
  const auto mixtral = parameters_of("MixtralForCausalLM", R"(, "model_type": "mixtral")");
  EXPECT_EQ(mixtral.at("model.layers.1.block_sparse_moe.gate.weight"), "[4, 16] bf16");
}

constexpr const char* kDeltaNet = R"(, "layer_types": ["linear_attention", "full_attention"], "num_experts": 4,
  "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 10,
  "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 3, "linear_value_head_dim": 5,
  "partial_rotary_factor": 1.0)";

TEST(Qwen3Next, HasDeltaNetsBetweenAttentionWithGates) {
  const ModelConfig config = Config("Qwen3NextForCausalLM", std::string(kDeltaNet) + R"(, "model_type": "qwen3_next")");
  const auto parameters = ParametersOf(config, {1, 2});
  EXPECT_EQ(parameters.at("model.layers.0.linear_attn.in_proj_qkvz.weight"), "[26, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.linear_attn.in_proj_ba.weight"), "[4, 16] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.linear_attn.conv1d.weight"), "[16, 1, 4] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.linear_attn.A_log"), "[2] f32");
  EXPECT_EQ(parameters.at("model.layers.0.linear_attn.dt_bias"), "[2] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.linear_attn.norm.weight"), "[5] bf16");
  EXPECT_EQ(parameters.at("model.layers.0.linear_attn.out_proj.weight"), "[16, 10] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.self_attn.qkv_proj.weight"), "[36, 16] bf16");  // 2 x (2 + 2) + 1 + 1, of 6
  EXPECT_EQ(parameters.at("model.layers.1.self_attn.o_proj.weight"), "[16, 12] bf16");
  EXPECT_EQ(parameters.at("model.layers.1.mlp.shared_expert_gate.weight"), "[1, 16] bf16");
  const auto model = ModelRegistry::Builtin().Build(config, {});
  EXPECT_THAT(model->Resolve({"mtp.layers.0.mlp.gate.weight", DType::kBF16, {4, 16}}).skip_rule,
              HasSubstr("draft layer"));
}

TEST(Qwen35, TakesTheLanguageModelOfAVisionLanguageOne) {
  for (const char* kind : {"ForCausalLM", "ForConditionalGeneration"}) {
    const auto model = ModelRegistry::Builtin().Build(Config("Qwen3_5" + std::string(kind), kDeltaNet), {});
    for (const char* prefix : {"model.language_model.", "model."}) {
      const auto to =
          model->Resolve({std::string(prefix) + "layers.0.linear_attn.in_proj_z.weight", DType::kBF16, {20, 16}});
      EXPECT_EQ(to.owner_path, "model.layers.0.linear_attn.in_proj_qkvz");
    }
    EXPECT_THAT(model->Resolve({"model.visual.blocks.0.norm1.bias", DType::kBF16, {3}}).skip_rule,
                HasSubstr("vision tower"));
    EXPECT_EQ(model->Resolve({"lm_head.weight", DType::kBF16, {100, 16}}).owner_path, "lm_head");
  }
}

TEST(Qwen35, IsDenseOrAMixture) {
  const auto dense = ParametersOf(Config("Qwen3_5ForCausalLM", kDeltaNet));
  EXPECT_EQ(dense.at("model.layers.0.mlp.gate_up_proj.weight"), "[48, 16] bf16");
  EXPECT_EQ(dense.at("model.layers.0.linear_attn.in_proj_qkvz.weight"), "[52, 16] bf16");
  const auto mixture = ParametersOf(Config("Qwen3_5MoeForCausalLM", kDeltaNet));
  EXPECT_EQ(mixture.at("model.layers.0.mlp.experts.w13_weight"), "[4, 16, 16] bf16");
}

TEST(Families, CannotDivideAttentionWithGatesIntoHalfHeads) {
  const auto build = [] {
    (void)ParametersOf(Config("Qwen3_5ForCausalLM", std::string(kDeltaNet) + R"(,
    "num_attention_heads": 1, "num_key_value_heads": 1)"),
                       {0, 2});
  };
  EXPECT_EQ(ErrorOf(build), "num_attention_heads 1 is not divisible by tp_size 2");
}

TEST(Families, SkipTheScalesOfAQuantizedCacheUnderAnyName) {
  const auto model = ModelRegistry::Builtin().Build(Config("LlamaForCausalLM"), {});
  for (const char* name : {"self_attn.k_proj.k_scale", "self_attn.kv_scale", "self_attn.attn.v_scale"}) {
    EXPECT_THAT(model->Resolve({"model.layers.0." + std::string(name), DType::kF32, {1}}).skip_rule,
                HasSubstr("key/value cache"));
  }
  EXPECT_THROW((void)model->Resolve({"model.layers.0.self_attn.k_proj.weight_scale", DType::kF32, {1}}), Error);
}

TEST(ModelRegistry, PutsTheNamesOfTheHostBeforeThoseOfTheFamily) {
  const WeightsMapper names({NameRule::Prefix("policy", "model.language_model")});
  const ModelConfig config = Config("Gemma3ForConditionalGeneration", R"(, "model_type": "gemma3_text")");
  const auto model = ModelRegistry::Builtin().Build(config, {}, names);
  EXPECT_EQ(model->Resolve({"policy.norm.weight", DType::kBF16, {16}}).owner_path, "model.norm");
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

// By the name that config.json has for it.
TEST(Families, NameTheFieldThatTpDoesNotDivide) {
  const auto error_of = [](const std::string& architecture, const std::string& more) {
    return ErrorOf([&] {
      const std::string experts = R"(, "num_experts": 4, "num_experts_per_tok": 2)";
      (void)ParametersOf(Config(architecture, experts + more), {0, 2});
    });
  };
  EXPECT_EQ(error_of("Qwen2MoeForCausalLM", R"(, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 57)"),
            "shared_expert_intermediate_size 57 is not divisible by tp_size 2");
  EXPECT_EQ(error_of("Qwen3MoeForCausalLM", R"(, "moe_intermediate_size": 57)"),
            "moe_intermediate_size 57 is not divisible by tp_size 2");
  EXPECT_EQ(error_of("MixtralForCausalLM", R"(, "intermediate_size": 57)"),
            "intermediate_size 57 is not divisible by tp_size 2");
  const std::string nemotron = R"(, "model_type": "nemotron_h", "hybrid_override_pattern": )";
  EXPECT_EQ(error_of("NemotronHForCausalLM", nemotron + R"("E", "moe_intermediate_size": 8,
                     "moe_shared_expert_intermediate_size": 57)"),
            "moe_shared_expert_intermediate_size 57 is not divisible by tp_size 2");
  EXPECT_EQ(error_of("NemotronHForCausalLM", nemotron + R"("-", "intermediate_size": 57)"),
            "intermediate_size 57 is not divisible by tp_size 2");
  EXPECT_EQ(error_of("NemotronHForCausalLM", nemotron + R"("M", "mamba_num_heads": 9, "n_groups": 1)"),
            "mamba_num_heads 9 is not divisible by tp_size 2");
}

// Of several shared experts; alone on the ranks, since the experts themselves are whole there.
TEST(Families, NameTheFieldsThatASharedExpertsSizeIsMadeOf) {
  const ParallelConfig spread{.tp_rank = 0, .tp_size = 2, .ep_rank = 0, .ep_size = 2};
  EXPECT_EQ(ErrorOf([&] {
              (void)ParametersOf(Config("Glm4MoeForCausalLM", R"(, "model_type": "glm4_moe", "n_routed_experts": 4,
                "num_experts_per_tok": 2, "moe_intermediate_size": 19, "n_shared_experts": 3, "partial_rotary_factor": 1.0)"),
                                 spread);
            }),
            "n_shared_experts * moe_intermediate_size 57 is not divisible by tp_size 2");
}

TEST(ModelRegistry, ListsTheKnownOnesToAnUnknownOne) {
  const std::string error = ErrorOf([] { (void)ParametersOf(Config("UnknownForCausalLM")); });
  EXPECT_THAT(error, HasSubstr("Model architectures [UnknownForCausalLM] are not supported for now. Supported "
                               "architectures: {DeepseekV2, DeepseekV3, Gemma2, "));
  EXPECT_THAT(error, HasSubstr("}ForCausalLM, {Gemma3, Qwen3_5, Qwen3_5Moe}ForConditionalGeneration. A host program "
                               "describes one of its own in one call, ModelRegistry::Register"));
  for (const std::string& name : ModelRegistry::Builtin().architectures()) {
    EXPECT_THAT(error, HasSubstr(name.substr(0, name.rfind("For"))));
  }
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
  const LayerContext context{.parallel = parallel, .dtype = dtype};
  return std::make_unique<DecoderForCausalLM>("MineForCausalLM", context, config, [&](std::int64_t layer) {
    auto attention = std::make_unique<Attention>(context, config, layer, AttentionOptions{.qkv_bias = layer == 0});
    return std::make_unique<DecoderLayer>(context, config, std::move(attention),
                                          std::make_unique<GatedMlp>(context, config, false));
  });
}

TEST(ModelRegistry, TakesAFamilyOfTheHostProgram) {
  ModelRegistry registry = ModelRegistry::Builtin();
  registry.Register("MineForCausalLM", BuildMine);
  EXPECT_THAT(registry.architectures(), ::testing::Contains("MineForCausalLM"));
  const auto model = registry.Build(Config("MineForCausalLM"), {});
  std::map<std::string, std::string> parameters;
  Collect(*model, "", parameters);
  EXPECT_TRUE(parameters.contains("model.layers.0.self_attn.qkv_proj.bias"));
  EXPECT_FALSE(parameters.contains("model.layers.1.self_attn.qkv_proj.bias"));
  EXPECT_THAT(ModelRegistry::Builtin().architectures(), ::testing::Not(::testing::Contains("MineForCausalLM")));
}

// Another family's file lacks fields that the families here have, which is not what is wrong with it.
TEST(ModelRegistry, NamesAnUnknownArchitectureBeforeAFieldThatItsFileLacks) {
  const auto gpt2 = ModelDescription::FromJson(
      R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 8})", "folder");
  const auto nested = ModelDescription::FromJson(
      R"({"architectures": ["MineForVision"], "text_config": {"architectures": ["LlamaForCausalLM"]}})");
  ModelRegistry registry;
  registry.Register("LlamaForCausalLM", BuildMine);
  registry.Register("Mine", BuildMine);
  EXPECT_THAT(ErrorOf([&] { (void)registry.Build(gpt2, {}); }, ErrorCode::kUnsupported),
              ::testing::StartsWith("folder: Model architectures [GPT2LMHeadModel] are not supported for now. "
                                    "Supported architectures: Mine, LlamaForCausalLM. A host program "));
  EXPECT_THAT(ErrorOf([&] { (void)registry.ConfigOf(nested); }, ErrorCode::kUnsupported), HasSubstr("[MineForVision]"));
  EXPECT_THAT(ErrorOf([&] { (void)ModelRegistry::Builtin().DraftConfigOf(gpt2); }, ErrorCode::kUnsupported),
              ::testing::StartsWith("folder: no draft model is known for [GPT2LMHeadModel], expected one of "));
  // Of one that a host program has registered, the field is.
  registry.Register("GPT2LMHeadModel", BuildMine);
  EXPECT_EQ(ErrorOf([&] { (void)registry.ConfigOf(gpt2); }), "folder/config.json: vocab_size is missing");
}

TEST(ModelRegistry, RefusesANameThatIsTaken) {
  ModelRegistry registry = ModelRegistry::Builtin();
  EXPECT_EQ(ErrorOf([&] { registry.Register("LlamaForCausalLM", BuildMine); }),
            "Model architecture LlamaForCausalLM already registered");
}

}  // namespace
}  // namespace layercast
