#include "layercast/model/latent_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "layercast/model/registry.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// What a rank serves in full precision, derived tensors included, by full name.
void Collect(const Module& module, const std::string& path, std::map<std::string, std::string>& out) {
  for (const Parameter& parameter : module.parameters()) out[path + parameter.spec.name] = Describe(parameter.spec);
  for (const DerivedTensor& derived : module.derived()) out[path + derived.spec.name] = Describe(derived.spec);
  for (const auto& [name, child] : module.children()) Collect(*child, path + name + ".", out);
}

std::map<std::string, std::string> TensorsOf(const Module& model) {
  std::map<std::string, std::string> tensors;
  Collect(model, "", tensors);
  return tensors;
}

// The published configuration of Kimi-K2, as far as it says what the model is.
Json KimiK2() {
  return Json::parse(R"({
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "torch_dtype": "bfloat16",
    "attention_bias": false, "aux_loss_alpha": 0.001, "first_k_dense_replace": 1, "hidden_act": "silu",
    "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 131072,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384, "n_shared_experts": 1,
    "norm_topk_prob": true, "num_attention_heads": 64, "num_experts_per_tok": 8, "num_hidden_layers": 61,
    "num_key_value_heads": 64, "num_nextn_predict_layers": 0, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "routed_scaling_factor": 2.827, "scoring_func": "sigmoid",
    "rope_scaling": {"beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                     "original_max_position_embeddings": 4096, "type": "yarn"},
    "rope_theta": 50000.0, "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc",
    "v_head_dim": 128, "vocab_size": 163840,
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                            "weight_block_size": [128, 128]}})");
}

// The published configuration of DeepSeek-V3, likewise.
Json DeepseekV3() {
  Json json = KimiK2();
  json.update({{"model_type", "deepseek_v3"},
               {"first_k_dense_replace", 3},
               {"n_group", 8},
               {"n_routed_experts", 256},
               {"num_attention_heads", 128},
               {"num_key_value_heads", 128},
               {"num_nextn_predict_layers", 1},
               {"topk_group", 4},
               {"vocab_size", 129280}});
  return json;
}

std::unique_ptr<Module> Build(const Json& json, const ParallelConfig& parallel = {}) {
  return ModelRegistry::Builtin().Build(ModelConfig::Parse(json.dump()), parallel);
}

TEST(LatentUpProjection, DerivesFromTheRowsOfEachHead) {
  // Head by head, 2 rows of the key, 3 of the value, 2 columns; each element is ten times its row and its column.
  const LatentUpProjection layer({.parallel = {0, 2}, .dtype = DType::kF32},
                                 {.num_heads = 4, .kv_lora_rank = 2, .qk_nope_head_dim = 2, .v_head_dim = 3});
  std::vector<float> weight;
  for (int row = 0; row < 10; ++row) {
    for (int col = 0; col < 2; ++col) weight.push_back(static_cast<float>(10 * row + col));
  }
  ASSERT_EQ(layer.derived().size(), 2U);
  const auto derive = [&](std::size_t index) {
    const DerivedTensor& derived = layer.derived()[index];
    std::vector<float> values(static_cast<std::size_t>(derived.spec.num_elements()), -1.0F);
    const auto& view = std::get<DerivedTensor::StridedView>(derived.form);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < derived.spec.shape[0]; ++i) {
      for (std::int64_t j = 0; j < derived.spec.shape[1]; ++j) {
        for (std::int64_t k = 0; k < derived.spec.shape[2]; ++k) {
          const std::int64_t element = view.offset + i * view.strides[0] + j * view.strides[1] + k * view.strides[2];
          values[at++] = weight[static_cast<std::size_t>(element)];
        }
      }
    }
    return values;
  };
  EXPECT_EQ(layer.derived()[0].spec, (TensorSpec{"W_UK_T", DType::kF32, {2, 2, 2}}));
  EXPECT_EQ(derive(0), (std::vector<float>{0, 1, 10, 11, 50, 51, 60, 61}));
  EXPECT_EQ(layer.derived()[1].spec, (TensorSpec{"W_UV", DType::kF32, {2, 2, 3}}));
  EXPECT_EQ(derive(1), (std::vector<float>{20, 30, 40, 21, 31, 41, 70, 80, 90, 71, 81, 91}));
}

TEST(LatentUpProjection, TakesTheRowsOfItsHeads) {
  const LatentUpProjection layer({.parallel = {1, 2}, .dtype = DType::kF32},
                                 {.num_heads = 4, .kv_lora_rank = 7, .qk_nope_head_dim = 2, .v_head_dim = 3});
  const std::vector<PlacedPiece> pieces = layer.Place("weight", "", {"weight", DType::kF32, {20, 7}});
  ASSERT_EQ(pieces.size(), 1U);  // heads 2 and 3: keys in rows 10 to 12 and 15 to 17
  EXPECT_EQ(pieces[0].source, Box::Slice({20, 7}, 0, 10, 10));
  EXPECT_EQ(pieces[0].destination, Box::Whole({10, 7}));
}

TEST(MergedReplicatedLinear, HoldsAllOfEachShardOnEveryRank) {
  const MergedReplicatedLinear layer({.parallel = {1, 2}}, 4, {{"q_a_proj", 5}, {"kv_a_proj_with_mqa", 3}}, true);
  const TensorSpec second{"weight", DType::kBF16, {3, 4}};
  const std::vector<PlacedPiece> pieces = layer.Place("weight", "1", second);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].source, Box::Whole({3, 4}));
  EXPECT_EQ(pieces[0].destination, Box::Slice({8, 4}, 0, 5, 3));
  EXPECT_THAT(ErrorOf([&] { (void)layer.Place("weight", "2", second); }),
              HasSubstr("Shard id should be between 0 and 1. Got shard id 2."));
}

TEST(DeepseekV3, HasTheTensorsOfItsFamily) {
  const auto model = Build(DeepseekV3(), {3, 8});
  const auto tensors = TensorsOf(*model);
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.fused_qkv_a_proj.weight"), "[2112, 7168] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.q_a_layernorm.weight"), "[1536] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.q_b_proj.weight"), "[3072, 1536] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.kv_a_layernorm.weight"), "[512] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.kv_b_proj.weight"), "[4096, 512] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.kv_b_proj.W_UK_T"), "[16, 128, 512] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.kv_b_proj.W_UV"), "[16, 512, 128] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.self_attn.o_proj.weight"), "[7168, 2048] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.mlp.gate.e_score_correction_bias"), "[256] f32");
  EXPECT_EQ(tensors.at("model.layers.3.mlp.experts.w13_weight"), "[256, 512, 7168] bf16");
  EXPECT_EQ(tensors.at("model.layers.3.mlp.shared_experts.gate_up_proj.weight"), "[512, 7168] bf16");
  EXPECT_EQ(tensors.at("model.layers.2.mlp.gate_up_proj.weight"), "[4608, 7168] bf16");
  EXPECT_FALSE(tensors.contains("model.layers.2.mlp.gate.weight"));
  EXPECT_EQ(model->Resolve({"model.layers.61.eh_proj.weight", DType::kBF16, {7168, 14336}}).skip_rule,
            "a draft layer (MTP) is not served");
}

TEST(DeepseekV3, IsAlsoKimiK2ByItsConfiguration) {
  const auto model = Build(KimiK2(), {0, 16});
  const auto tensors = TensorsOf(*model);
  EXPECT_EQ(tensors.at("model.layers.60.self_attn.kv_b_proj.W_UK_T"), "[4, 128, 512] bf16");
  EXPECT_EQ(tensors.at("model.layers.1.mlp.experts.w2_weight"), "[384, 7168, 128] bf16");
  EXPECT_EQ(tensors.at("model.layers.0.mlp.down_proj.weight"), "[7168, 1152] bf16");
  EXPECT_THROW((void)model->Resolve({"model.layers.61.eh_proj.weight", DType::kBF16, {7168, 14336}}), Error);

  const LatentAttentionSpec spec = LatentAttentionSpec::Parse(ModelConfig::Parse(KimiK2().dump()));
  const double mscale = 0.1 * std::log(32.0) + 1.0;
  EXPECT_DOUBLE_EQ(spec.scale, mscale * mscale / std::sqrt(192.0));
  EXPECT_TRUE(spec.interleaved);
}

TEST(DeepseekV3, TakesBlocksOfCodesAsTheyAreShipped) {
  const auto model = Build(DeepseekV3(), {3, 8});
  const Module* attention = model->FindChild("model")->FindChild("layers")->FindChild("4")->FindChild("self_attn");
  for (const char* name : {"fused_qkv_a_proj", "q_b_proj", "kv_b_proj", "o_proj"}) {
    const auto& layer = dynamic_cast<const LinearLayer&>(*attention->FindChild(name));
    EXPECT_EQ(layer.quantized_form()->recipe(), "fp8_per_block") << name;
    EXPECT_EQ(layer.WhyNotSliced(), "") << name;
  }
}

TEST(DeepseekV2, MakesQueriesOfTheHiddenStateWhereTheyHaveNoVectorOfTheirOwn) {
  Json json = DeepseekV3();
  json.update({{"architectures", {"DeepseekV2ForCausalLM"}},
               {"model_type", "deepseek_v2"},
               {"q_lora_rank", nullptr},
               {"scoring_func", "softmax"},
               {"topk_method", "greedy"}});
  const auto tensors = TensorsOf(*Build(json));
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.q_proj.weight"), "[24576, 7168] bf16");
  EXPECT_EQ(tensors.at("model.layers.0.self_attn.kv_a_proj_with_mqa.weight"), "[576, 7168] bf16");
  EXPECT_FALSE(tensors.contains("model.layers.0.self_attn.q_a_layernorm.weight"));
  EXPECT_FALSE(tensors.contains("model.layers.3.mlp.gate.e_score_correction_bias"));
}

TEST(Deepseek, RefusesWhatItWouldComputeOtherwise) {
  const auto error_with = [](const char* field, const Json& value) {
    Json json = DeepseekV3();
    json[field] = value;
    return ErrorOf([&] { (void)Build(json); });
  };
  EXPECT_THAT(error_with("scoring_func", "softmax"), HasSubstr("scoring_func: expected sigmoid, got \"softmax\""));
  EXPECT_THAT(error_with("topk_method", "greedy"), HasSubstr("topk_method: expected noaux_tc, got \"greedy\""));
  EXPECT_THAT(error_with("qk_rope_head_dim", 63), HasSubstr("qk_rope_head_dim: expected an even number, got 63"));
  EXPECT_THAT(error_with("qk_rope_head_dim", -1), HasSubstr("json: qk_rope_head_dim: expected an integer"));
  EXPECT_THAT(error_with("kv_lora_rank", 0), HasSubstr("kv_lora_rank"));
  EXPECT_THAT(ErrorOf([] { (void)Build(DeepseekV3(), {0, 3}); }),
              HasSubstr("num_attention_heads 128 is not divisible by tp_size 3"));
}

}  // namespace
}  // namespace layercast
