#include "engine_side/adapters/adapter_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/engine_side/adapters/load/adapter_models.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::kLlama;
using testing::kQwen3Moe;
using testing::TreeOfConfig;

// "model.layers.0.self_attn.qkv_proj/q_proj 0+64 x 64": layer, shard, rows and columns.
std::vector<std::string> Texts(const std::vector<AdapterTerm>& terms) {
  std::vector<std::string> texts;
  for (const AdapterTerm& term : terms) {
    texts.push_back(term.layer + "/" + term.shard + " " + std::to_string(term.first_row) + "+" +
                    std::to_string(term.rows) + " x " + std::to_string(term.columns) +
                    (term.experts > 0 ? " of " + std::to_string(term.experts) : "") +
                    (term.lookup ? " looked up" : "") + (term.sums ? " sums" : ""));
  }
  return texts;
}

TEST(AdapterTerms, AreALayersShardsInTheTreesOrder) {
  EXPECT_THAT(
      Texts(AdapterTermsOf(*TreeOfConfig(kLlama))),
      ElementsAre(
          "model.embed_tokens/ 0+64 x 128 looked up sums", "model.layers.0.self_attn.qkv_proj/q_proj 0+64 x 64",
          "model.layers.0.self_attn.qkv_proj/k_proj 64+32 x 64", "model.layers.0.self_attn.qkv_proj/v_proj 96+32 x 64",
          "model.layers.0.self_attn.o_proj/ 0+64 x 64 sums", "model.layers.0.mlp.gate_up_proj/gate_proj 0+24 x 64",
          "model.layers.0.mlp.gate_up_proj/up_proj 24+24 x 64", "model.layers.0.mlp.down_proj/ 0+64 x 24 sums",
          "lm_head/ 0+128 x 64"));
}

TEST(AdapterTerms, AreOfThisRankAlone) {
  EXPECT_THAT(
      Texts(AdapterTermsOf(*TreeOfConfig(kLlama, {.tp_rank = 1, .tp_size = 4}))),
      ElementsAre(
          "model.embed_tokens/ 0+64 x 32 looked up sums", "model.layers.0.self_attn.qkv_proj/q_proj 0+16 x 64",
          "model.layers.0.self_attn.qkv_proj/k_proj 16+16 x 64",  // two ranks have each head
          "model.layers.0.self_attn.qkv_proj/v_proj 32+16 x 64", "model.layers.0.self_attn.o_proj/ 0+64 x 16 sums",
          "model.layers.0.mlp.gate_up_proj/gate_proj 0+6 x 64", "model.layers.0.mlp.gate_up_proj/up_proj 6+6 x 64",
          "model.layers.0.mlp.down_proj/ 0+64 x 6 sums", "lm_head/ 0+32 x 64"));
}

TEST(AdapterTerms, OfATiedHeadAreItsOwn) {
  const auto terms = AdapterTermsOf(*TreeOfConfig(kLlama + R"(, "tie_word_embeddings": true)"));
  EXPECT_EQ(Texts(terms).front(), "model.embed_tokens/ 0+64 x 128 looked up sums");
  EXPECT_EQ(Texts(terms).back(), "lm_head/ 0+128 x 64");
}

TEST(AdapterTerms, OfExpertsAreStacked) {
  ParallelConfig parallel{.tp_rank = 1, .tp_size = 2};
  const std::vector<std::string> split = Texts(AdapterTermsOf(*TreeOfConfig(kQwen3Moe, parallel)));
  EXPECT_THAT(split, ::testing::IsSupersetOf({"model.layers.0.mlp.gate/ 0+4 x 32",
                                              "model.layers.0.mlp.experts/w1 0+12 x 32 of 4",
                                              "model.layers.0.mlp.experts/w3 12+12 x 32 of 4",
                                              "model.layers.0.mlp.experts/w2 0+32 x 12 of 4 sums"}));
  parallel.SpreadExperts(ExpertPlacement::kContiguous);
  const std::vector<std::string> spread = Texts(AdapterTermsOf(*TreeOfConfig(kQwen3Moe, parallel)));
  EXPECT_THAT(spread, ::testing::IsSupersetOf({"model.layers.0.mlp.experts/w1 0+24 x 32 of 2",
                                               "model.layers.0.mlp.experts/w3 24+24 x 32 of 2",
                                               "model.layers.0.mlp.experts/w2 0+32 x 24 of 2"}));
}

TEST(AdapterTerms, AreNarrowedToModulesThatAreThere) {
  const auto tree = TreeOfConfig(kLlama);
  const std::vector<std::string> modules = {"q_proj", "o_proj", "model.layers.0.mlp.down_proj"};
  std::vector<std::string> names;
  for (const AdapterTerm& term : AdapterTermsOf(*tree, modules)) names.push_back(term.AName());
  EXPECT_THAT(names, ElementsAre("model.layers.0.self_attn.qkv_proj.q_proj_lora_A",
                                 "model.layers.0.self_attn.o_proj.lora_A", "model.layers.0.mlp.down_proj.lora_A"));
  const std::vector<std::string> unknown = {"q_proj", "zz_proj"};
  EXPECT_THAT(ErrorOf([&] { (void)AdapterTermsOf(*tree, unknown); }, ErrorCode::kInvalidArgument),
              ::testing::AllOf(HasSubstr("zz_proj"), HasSubstr("qkv_proj")));
}

}  // namespace
}  // namespace layercast
