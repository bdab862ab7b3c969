// Golden cases of loads: what PEFT says that the factors of its files add, case by case. Cases of arithmetic are beside
// what computes it (adapted_linear_test, latent_attention_block_test, adapted_families_test), those of names and scales
// in tests/src/adapter.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine_side/adapters/load/adapter_models.h"
#include "tests/engine_side/adapters/load/adapter_rig.h"

namespace layercast::testing {
namespace {

using Matrix = std::vector<std::vector<float>>;

// scale * B A of an expert, from what lies in the slot. `part`: "mlp.experts.w2".
Matrix DeltaOf(const Rank& engine, const LoadedAdapter& loaded, const std::string& part, std::size_t expert,
               std::size_t rows, std::size_t columns) {
  const auto term = std::ranges::find_if(loaded.terms, [&](const LoadedAdapter::Term& each) {
    return each.a == "model.layers.0." + part + "_lora_A" && each.expert == static_cast<std::int64_t>(expert);
  });
  if (term == loaded.terms.end()) throw std::runtime_error("no term of " + part);
  const auto max_rank = static_cast<std::size_t>(engine.max_rank());
  const auto a = engine.Values(part + "_lora_A").subspan(expert * max_rank * columns);
  const auto b = engine.Values(part + "_lora_B").subspan(expert * rows * max_rank);
  Matrix delta(rows, std::vector<float>(columns));
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t c = 0; c < columns; ++c) {
      float sum = 0;
      for (std::size_t j = 0; j < static_cast<std::size_t>(term->rank); ++j) {
        sum += b[i * max_rank + j] * a[j * columns + c];
      }
      delta[i][c] = term->scale * sum;
    }
  }
  return delta;
}

std::vector<float> Times(const Matrix& delta, const std::vector<float>& x) {
  std::vector<float> y;
  for (const auto& row : delta) y.push_back(std::inner_product(row.begin(), row.end(), x.begin(), 0.0F));
  return y;
}

// Two experts of hidden size 3 and intermediate size 2: a stack of down_proj is [2, 3, 2].
const std::string kTwoExperts = R"("architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 3, "intermediate_size": 2, "moe_intermediate_size": 2, "num_experts": 2, "num_experts_per_tok": 1,
  "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4, "norm_topk_prob": true, "decoder_sparse_step": 1,
  "mlp_only_layers": [])";

std::string OfDownProj(int rank) {
  return R"({"peft_type": "LORA", "peft_version": "0.21.2", "target_parameters": ["mlp.experts.down_proj"], "r": )" +
         std::to_string(rank) + R"(, "lora_alpha": )" + std::to_string(rank) + "}";
}

TEST(GoldenAdapters, Case10ExpertsHaveRowsOfAAndColumnsOfB) {
  AdapterOnDisk adapter(OfDownProj(1));
  adapter.Add(kPrefix + "mlp.experts.lora_A.weight", std::vector<float>{1, 2, 3, 4}, {2, 2});
  adapter.Add(kPrefix + "mlp.experts.lora_B.weight", std::vector<float>{5, 6, 7, 8, 9, 10}, {3, 2});
  Rank engine(kTwoExperts);
  const LoadedAdapter loaded = engine.Load(adapter.Write());
  const Matrix first = DeltaOf(engine, loaded, "mlp.experts.w2", 0, 3, 2);
  const Matrix second = DeltaOf(engine, loaded, "mlp.experts.w2", 1, 3, 2);
  EXPECT_EQ(first, (Matrix{{5, 10}, {7, 14}, {9, 18}}));
  EXPECT_EQ(second, (Matrix{{18, 24}, {24, 32}, {30, 40}}));
  EXPECT_EQ(Times(first, {1, 1}), (std::vector<float>{15, 21, 27}));
  EXPECT_EQ(Times(second, {1, 1}), (std::vector<float>{42, 56, 70}));
}

TEST(GoldenAdapters, Case11TheColumnsOfAnExpertsBAreApart) {
  AdapterOnDisk adapter(OfDownProj(2));
  adapter.Add(kPrefix + "mlp.experts.lora_A.weight", std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  adapter.Add(kPrefix + "mlp.experts.lora_B.weight", std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 4});
  Rank engine(kTwoExperts);
  const LoadedAdapter loaded = engine.Load(adapter.Write());
  EXPECT_EQ(DeltaOf(engine, loaded, "mlp.experts.w2", 0, 3, 2), (Matrix{{10, 14}, {26, 38}, {42, 62}}));
  EXPECT_EQ(DeltaOf(engine, loaded, "mlp.experts.w2", 1, 3, 2), (Matrix{{38, 44}, {86, 100}, {134, 156}}));
}

const std::string kMixtral = R"("architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 32,
  "intermediate_size": 24, "num_local_experts": 2, "num_experts_per_tok": 1, "num_attention_heads": 4,
  "num_key_value_heads": 2)";

// As transformers 4 named experts, and as transformers 5 has PEFT read the same file: one stack, twice the rank.
TEST(GoldenAdapters, Case16FactorsOfSingleExpertsAreThoseOfAStackOfTwiceTheRank) {
  constexpr std::size_t kExperts = 2, kRank = 3, kRows = 24, kColumns = 32;
  AdapterOnDisk single(R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6})");
  for (std::size_t e = 0; e < kExperts; ++e) {
    for (const char* name : {".w1", ".w3"}) {
      single.AddPair("block_sparse_moe.experts." + std::to_string(e) + name, kRank, kColumns, kRows);
    }
  }
  std::vector<float> a, b(2 * kRows * 2 * kRank * kExperts);
  for (std::size_t e = 0; e < kExperts; ++e) {
    for (const std::size_t up : {0U, 1U}) {
      const std::string of = "block_sparse_moe.experts." + std::to_string(e) + (up == 1 ? ".w3" : ".w1");
      a.insert(a.end(), single[of + ".lora_A.weight"].begin(), single[of + ".lora_A.weight"].end());
      for (std::size_t i = 0; i < kRows; ++i) {
        for (std::size_t j = 0; j < kRank; ++j) {
          const std::size_t row = up * kRows + i, column = (up * kRank + j) * kExperts + e;
          b[row * 2 * kRank * kExperts + column] = single[of + ".lora_B.weight"][i * kRank + j];
        }
      }
    }
  }
  AdapterOnDisk stacked(R"({"peft_type": "LORA", "r": 3, "lora_alpha": 6, "peft_version": "0.21.2",
    "rank_pattern": {".*\\.gate_up_proj": 6}, "alpha_pattern": {".*\\.gate_up_proj": 12},
    "target_parameters": ["gate_up_proj"]})");
  stacked.Add(kPrefix + "mlp.experts.lora_A.weight", a, {12, 32});
  stacked.Add(kPrefix + "mlp.experts.lora_B.weight", b, {48, 12});
  Rank engine(kMixtral, {}, {}, 6);
  const LoadedAdapter loaded = engine.Load(single.Write(), 0);
  std::vector<Matrix> deltas;
  for (std::size_t e = 0; e < kExperts; ++e) {
    for (const char* part : {"block_sparse_moe.experts.w1", "block_sparse_moe.experts.w3"}) {
      deltas.push_back(DeltaOf(engine, loaded, part, e, kRows, kColumns));
    }
  }
  const std::vector<float>& gate_a = single["block_sparse_moe.experts.1.w1.lora_A.weight"];
  const std::vector<float>& gate_b = single["block_sparse_moe.experts.1.w1.lora_B.weight"];
  float plain = 0;
  for (std::size_t j = 0; j < kRank; ++j) plain += gate_b[5 * kRank + j] * gate_a[j * kColumns + 7];
  EXPECT_EQ(deltas[2][5][7], 2 * plain);  // delta = 2 B A

  const LoadedAdapter of_stack = engine.Load(stacked.Write(), 0);
  for (std::size_t e = 0, i = 0; e < kExperts; ++e) {
    for (const char* part : {"block_sparse_moe.experts.w1", "block_sparse_moe.experts.w3"}) {
      EXPECT_EQ(DeltaOf(engine, of_stack, part, e, kRows, kColumns), deltas[i++]) << part << " of expert " << e;
    }
  }
  for (const LoadedAdapter::Term& term : of_stack.terms) {
    const bool of_gate_up = term.a.ends_with("w1_lora_A") || term.a.ends_with("w3_lora_A");
    EXPECT_EQ(std::pair(term.rank, term.scale), of_gate_up ? std::pair(6, 2.0F) : std::pair(0, 0.0F)) << term.a;
  }
}

TEST(GoldenAdapters, Case18AllLinearOfLatentAttentionReachesItsLayers) {
  const std::string config = R"("architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "hidden_size": 32, "intermediate_size": 40, "moe_intermediate_size": 24, "num_attention_heads": 4,
    "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 0, "n_group": 2, "topk_group": 1, "q_lora_rank": 12, "kv_lora_rank": 14,
    "qk_rope_head_dim": 6, "qk_nope_head_dim": 10, "v_head_dim": 8)";
  AdapterOnDisk adapter(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "peft_version": "0.21.2",
    "rank_pattern": {".*\\.gate_up_proj": 4}, "alpha_pattern": {".*\\.gate_up_proj": 16},
    "target_modules": ["kv_a_proj_with_mqa", "o_proj", "q_a_proj", "kv_b_proj", "q_b_proj"],
    "target_parameters": ["gate_up_proj", "gate.weight", "down_proj"]})");
  adapter.AddPair("self_attn.q_a_proj", 2, 32, 12);
  adapter.AddPair("self_attn.q_b_proj", 2, 12, 64);
  adapter.AddPair("self_attn.kv_a_proj_with_mqa", 2, 32, 20);
  adapter.AddPair("self_attn.kv_b_proj", 2, 14, 72);
  adapter.AddPair("self_attn.o_proj", 2, 32, 32);
  adapter.AddPair("mlp.gate", 2, 32, 4);
  adapter.AddPair("mlp.experts.base_layer", 16, 32, 48);
  adapter.AddPair("mlp.experts", 8, 24, 32);
  Rank engine(config);
  const LoadedAdapter loaded = engine.Load(adapter.Write());
  EXPECT_EQ(loaded.modules, 8U);
  EXPECT_TRUE(loaded.warnings.empty() && loaded.unused.empty() && loaded.skipped.empty());
  std::size_t with_rank = 0;
  for (const LoadedAdapter::Term& term : loaded.terms) {
    if (term.rank == 0) continue;
    ++with_rank;
    const bool of_gate_up = term.a.ends_with("w1_lora_A") || term.a.ends_with("w3_lora_A");
    EXPECT_EQ(std::pair(term.rank, term.scale), std::pair(of_gate_up ? 4 : 2, 4.0F)) << term.a;
  }
  EXPECT_EQ(with_rank, 6U + 4 * 3);  // six linear layers, and three parts of each of four experts
  EXPECT_EQ(engine.Values("self_attn.kv_b_proj.lora_A").size(), 4U * 14);  // [largest rank, kv_lora_rank]
  EXPECT_EQ(engine.Values("self_attn.kv_b_proj.lora_B").size(), 72U * 4);
}

}  // namespace
}  // namespace layercast::testing
