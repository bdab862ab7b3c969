// Whole models of every kind of layer: an adapter's logits against those of the same model with the adapter merged into
// its fp32 weights, and ranks against one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine_side/engine/ranks/shared_memory_collective.h"
#include "tests/engine_side/engine/built_in/family_rank.h"

namespace layercast::testing {

struct Family {
  std::string name, fields;
  int ep_size = 1;
  float tolerance = 1e-5F;  // recurrent layers amplify
};

void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

namespace {

const std::vector<std::int32_t> kPrompts[] = {{3, 1, 4, 1, 5, 9, 2, 6}, {49, 7, 30}, {27, 18, 28, 18, 28, 45}};

constexpr const char* kLatentFields = R"(, "num_key_value_heads": 4, "kv_lora_rank": 14, "qk_nope_head_dim": 10,
    "qk_rope_head_dim": 6, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
    "topk_group": 1, "moe_intermediate_size": 12, "n_shared_experts": 1, "first_k_dense_replace": 1)";
constexpr const char* kDeltaNetFields = R"(, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 6, "linear_value_head_dim": 10, "layer_types": ["linear_attention", "full_attention"],
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 14)";
constexpr const char* kHybridFields = R"(, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
    "num_hidden_layers": 4, "mamba_num_heads": 4, "mamba_head_dim": 12, "ssm_state_size": 6, "n_groups": 2,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
    "moe_shared_expert_intermediate_size": 16, "moe_latent_size": 20)";
constexpr const char* kMixtralFields = R"(, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
    "num_local_experts": 4, "num_experts_per_tok": 2)";

const std::vector<Family>& Families() {
  static const std::vector<Family> kFamilies = {
      {"Llama", R"(, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": true,
                   "mlp_bias": true)"},
      {"Phi3", R"(, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "pad_token_id": 0)"},
      {"Gemma3", R"(, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 4,
                    "sliding_window_pattern": 2, "query_pre_attn_scalar": 12)"},
      {"Mixtral", kMixtralFields},
      {"MixtralWithExpertRanks", kMixtralFields, 2},
      {"GptOss", R"(, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 4,
                    "num_experts_per_tok": 2, "sliding_window": 4, "swiglu_limit": 0.9)"},
      {"Qwen2Moe", R"(, "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "num_experts": 4,
                      "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 14)"},
      {"DeepseekV2", std::string(R"(, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
                                   "q_lora_rank": null, "topk_method": "group_limited_greedy")") +
                         kLatentFields},
      {"DeepseekV3", std::string(R"(, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
                                   "q_lora_rank": 16)") +
                         kLatentFields},
      {"Qwen3Next",
       std::string(R"(, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next")") + kDeltaNetFields, 1,
       3e-5F},
      {"Qwen35Moe",
       std::string(R"(, "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text")") +
           kDeltaNetFields,
       1, 3e-5F},
      {"NemotronH",
       std::string(R"(, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h")") + kHybridFields, 1,
       3e-5F},
  };
  return kFamilies;
}

ModelConfig ConfigOf(const Family& family) {
  const std::string common = R"({"dtype": "float32", "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40,
      "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8, "max_position_embeddings": 64,
      "tie_word_embeddings": false)";
  const bool latent = family.fields.find("kv_lora_rank") != std::string::npos;
  const std::string heads = latent ? "" : R"(, "num_key_value_heads": 2)";
  return ModelConfig::Parse(std::string_view(common + heads + family.fields + "}"));
}

// Of all tokens, prompt by prompt, side by side in one pass.
std::vector<float> LogitsOf(FamilyRank& rank, const std::vector<std::int32_t>& adapters) {
  std::vector<SequenceStep> steps;
  for (std::size_t i = 0; i < std::size(kPrompts); ++i) steps.push_back({i, kPrompts[i], true, adapters[i]});
  std::vector<float> logits = rank.decoder().Forward(steps).values;
  rank.decoder().DropAll();
  return logits;
}

float DifferenceOf(const std::vector<float>& a, const std::vector<float>& b) {
  float worst = 0.0F, largest = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) return a[i];
    worst = std::max(worst, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return worst / largest;
}

class AdaptedFamilies : public ::testing::TestWithParam<Family> {};

TEST_P(AdaptedFamilies, ComputeWhatMergedWeightsDo) {
  SingleRank alone;
  const ModelConfig config = ConfigOf(GetParam());
  FamilyRank adapted(config, {}, alone), merged(config, {}, alone);
  for (FamilyRank* rank : {&adapted, &merged}) {
    rank->slots().FillWithNaN(0);
    rank->slots().Fill(2, {.seed = 3, .rank = 5, .scale = 0.6F});
  }
  const std::vector<float> base = LogitsOf(adapted, {-1, -1, -1});
  EXPECT_EQ(LogitsOf(merged, {-1, -1, -1}), base);
  merged.Merge(2);
  const std::vector<float> expected = LogitsOf(merged, {-1, -1, -1}), got = LogitsOf(adapted, {2, 2, 2});
  EXPECT_GT(DifferenceOf(got, base), 0.05F);
  EXPECT_LT(DifferenceOf(got, expected), GetParam().tolerance);
}

// Each kind of layer alone: what one adds is not lost in what all add.
TEST_P(AdaptedFamilies, ComputeWhatMergedWeightsDoWithEachLayersAdapterAlone) {
  SingleRank alone;
  const ModelConfig config = ConfigOf(GetParam());
  FamilyRank adapted(config, {}, alone), merged(config, {}, alone);
  const std::vector<float> base = LogitsOf(adapted, {-1, -1, -1});
  for (const AdapterTerm& one : adapted.slots().slots().terms()) {
    SCOPED_TRACE(one.layer + " " + one.shard);
    const auto is_one = [&](const AdapterTerm& term) { return term.layer == one.layer && term.shard == one.shard; };
    for (FamilyRank* rank : {&adapted, &merged}) {
      rank->slots().Fill(1, {.seed = 5, .rank = 7, .scale = 0.9F, .has = is_one});
    }
    merged.Merge(1);
    const std::vector<float> got = LogitsOf(adapted, {1, 1, 1});
    EXPECT_GT(DifferenceOf(got, base), 1e-3F);
    EXPECT_LT(DifferenceOf(got, LogitsOf(merged, {-1, -1, -1})), GetParam().tolerance);
    merged.Restore();
  }
}

TEST_P(AdaptedFamilies, RanksAgreeWithOneRank) {
  const ModelConfig config = ConfigOf(GetParam());
  const auto fill = [](FamilyRank& rank) {
    rank.slots().Fill(0, {.seed = 3, .rank = 5, .scale = 0.6F});
    rank.slots().Fill(1, {.seed = 4, .rank = 2, .scale = 1.1F});
  };
  SingleRank alone;
  FamilyRank one(config, {}, alone);
  fill(one);
  const std::vector<float> expected = LogitsOf(one, {1, -1, 0});
  CollectiveSegment segment = CollectiveSegment::Create(2, 512);
  std::vector<std::vector<float>> logits(2);
  std::vector<std::jthread> threads;
  for (int index = 0; index < 2; ++index) {
    threads.emplace_back([&, index] {
      ParallelConfig parallel{.tp_rank = index, .tp_size = 2};
      if (GetParam().ep_size == 2) parallel.ep_rank = index, parallel.ep_size = 2;
      SegmentSeat seat(segment, index);
      SharedMemoryCollective collective(seat, parallel, std::chrono::seconds(60));
      FamilyRank rank(config, parallel, collective);
      fill(rank);
      logits[static_cast<std::size_t>(index)] = LogitsOf(rank, {1, -1, 0});
    });
  }
  threads.clear();
  EXPECT_EQ(logits[0], logits[1]);
  EXPECT_LT(DifferenceOf(logits[0], expected), GetParam().tolerance);
}

// Golden case 23: Gemma's embedding scales what an adapter adds as it scales its own rows: (W + s B A)[x] *
// embed_scale. The blocks add nothing, so that the head meets the normalized embedding alone.
TEST(AdaptedGemma, Case23TheEmbeddingsAdapterIsScaledAsTheEmbeddingIs) {
  SingleRank alone;
  FamilyRank rank(ConfigOf(Families()[2]), {}, alone);
  const auto buffer = [&](const std::string& name) -> const CapturedBuffer& {
    return *std::ranges::find(rank.buffers(), name, &CapturedBuffer::name);
  };
  for (const CapturedBuffer& each : rank.buffers()) {
    if (each.name.find("o_proj") == std::string::npos && each.name.find("down_proj") == std::string::npos) continue;
    std::memset(each.address, 0, static_cast<std::size_t>(NumBytes(each.dtype, each.shape)));
  }
  const auto is_embedding = [](const AdapterTerm& term) { return term.layer == "model.embed_tokens"; };
  rank.slots().Fill(1, {.seed = 23, .rank = 5, .scale = 0.9F, .has = is_embedding});
  const auto terms = rank.slots().slots().terms();
  const auto term = static_cast<std::size_t>(std::ranges::find_if(terms, is_embedding) - terms.begin());
  const auto* rows = reinterpret_cast<const float*>(buffer("model.embed_tokens.weight").address);
  const auto* head = reinterpret_cast<const float*>(buffer("lm_head.weight").address);
  const auto* norm = reinterpret_cast<const float*>(buffer("model.norm.weight").address);
  constexpr std::int64_t kHidden = 24;
  const auto expected_of = [&](std::int32_t token) {
    std::vector<double> x;
    double squares = 0;
    for (std::int64_t i = 0; i < kHidden; ++i) {
      double delta = 0;
      for (std::int64_t j = 0; j < 5; ++j)
        delta += rank.slots().B(term, 1, 0, i, j) * rank.slots().A(term, 1, 0, j, token);
      x.push_back((double{rows[token * kHidden + i]} + double{0.9F} * delta) * static_cast<double>(std::sqrt(24.0F)));
      squares += x.back() * x.back();
    }
    std::vector<double> logits(50);
    for (std::int64_t i = 0; i < kHidden; ++i) {
      const double normed =
          x[static_cast<std::size_t>(i)] / std::sqrt(squares / kHidden + 1e-6) * (1 + double{norm[i]});
      for (std::int64_t v = 0; v < 50; ++v)
        logits[static_cast<std::size_t>(v)] += normed * double{head[v * kHidden + i]};
    }
    return logits;
  };
  const std::vector<float> base = LogitsOf(rank, {-1, -1, -1}), got = LogitsOf(rank, {1, 1, 1});
  EXPECT_GT(DifferenceOf(got, base), 0.05F);
  std::vector<float> expected;
  for (const auto& prompt : kPrompts) {
    for (const std::int32_t token : prompt) {
      const std::vector<double> logits = expected_of(token);
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
  }
  EXPECT_LT(DifferenceOf(got, expected), 2e-6F);
}

INSTANTIATE_TEST_SUITE_P(OfEveryKind, AdaptedFamilies, ::testing::ValuesIn(Families()),
                         [](const auto& family) { return family.param.name; });

}  // namespace
}  // namespace layercast::testing
