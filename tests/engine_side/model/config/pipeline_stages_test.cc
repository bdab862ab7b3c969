// Which layers a stage of a pipeline has, and what a model's tree is on each stage.
#include "layercast/model/pipeline_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::int64_t> Counts(std::int64_t layers, int stages, const std::vector<std::int64_t>& partition = {}) {
  std::vector<std::int64_t> counts;
  for (int stage = 0; stage < stages; ++stage) {
    const PipelineStages of({.pp_rank = stage, .pp_size = stages, .pp_layer_partition = partition}, layers);
    EXPECT_EQ(of.is_first(), stage == 0);
    EXPECT_EQ(of.is_last(), stage == stages - 1);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      EXPECT_EQ(of.HoldsLayer(layer), layer >= of.begin() && layer < of.end()) << layer;
      EXPECT_EQ(of.HoldsLayer(layer), of.StageOf(layer) == stage) << layer;
    }
    counts.push_back(of.end() - of.begin());
  }
  return counts;
}

TEST(PipelineStages, SpreadLayersAsVllmDoes) {
  EXPECT_THAT(Counts(10, 4), ElementsAre(2, 3, 3, 2));
  EXPECT_THAT(Counts(11, 4), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(Counts(5, 2), ElementsAre(3, 2));
  EXPECT_THAT(Counts(61, 2), ElementsAre(31, 30));
  EXPECT_THAT(Counts(61, 4), ElementsAre(15, 15, 16, 15));
  EXPECT_THAT(Counts(3, 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(Counts(7, 1), ElementsAre(7));
}

TEST(PipelineStages, TakeAPartitionAsItIsGiven) {
  EXPECT_THAT(Counts(10, 3, {1, 7, 2}), ElementsAre(1, 7, 2));
  EXPECT_THAT(Counts(4, 1, {4}), ElementsAre(4));
}

TEST(PipelineStages, RefuseWhatCannotBeWithBothNumbers) {
  const auto refusal = [](ParallelConfig parallel, std::int64_t layers) {
    return ErrorOf([&] { PipelineStages(parallel, layers); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_EQ(refusal({.pp_rank = 2, .pp_size = 2}, 4),
            "expected pp_rank from 0 to pp_size - 1, got pp_rank 2 of pp_size 2");
  EXPECT_THAT(refusal({.pp_rank = -1, .pp_size = 2}, 4), HasSubstr("got pp_rank -1 of pp_size 2"));
  EXPECT_THAT(refusal({.pp_size = 0}, 4), HasSubstr("pp_rank 0 of pp_size 0"));
  EXPECT_THAT(refusal({.pp_size = 5}, 4), StartsWith("pp_size 5 exceeds num_hidden_layers 4"));
  const auto with = [&](std::vector<std::int64_t> partition) {
    return refusal({.pp_size = 2, .pp_layer_partition = std::move(partition)}, 4);
  };
  EXPECT_THAT(with({4}), HasSubstr("for each of pp_size 2 stages, got 1"));
  EXPECT_THAT(with({2, 3}), HasSubstr("num_hidden_layers 4 layers on all stages together, got 5"));
  EXPECT_THAT(with({4, 0}), HasSubstr("from 1 to num_hidden_layers 4 layers on a stage, got 0"));
  EXPECT_THAT(with({-1, 5}), HasSubstr("got -1"));
}

constexpr const char* kFourLayers = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
  "torch_dtype": "bfloat16", "tie_word_embeddings": )";

std::unique_ptr<Module> StageOfLlama(int stage, int stages, bool tied) {
  const ModelConfig config = ModelConfig::Parse(kFourLayers + std::string(tied ? "true}" : "false}"));
  return ModelRegistry::Builtin().Build(config, {.pp_rank = stage, .pp_size = stages});
}

// Who holds the tensor, as one of the stages sees it: "" for itself.
std::string HolderOf(const Module& model, const std::string& name, Shape shape) {
  return std::string(model.Resolve({name, DType::kBF16, std::move(shape)}).held_by);
}

TEST(StagesOfADecoder, HaveTheirLayersAndTheFirstOrLastParts) {
  const auto first = StageOfLlama(0, 2, false);
  const auto last = StageOfLlama(1, 2, false);
  const std::vector<std::pair<std::string, Shape>> of_first = {{"model.embed_tokens.weight", {100, 16}},
                                                               {"model.layers.0.self_attn.q_proj.weight", {16, 16}},
                                                               {"model.layers.1.mlp.down_proj.weight", {16, 24}}};
  const std::vector<std::pair<std::string, Shape>> of_last = {{"model.layers.2.input_layernorm.weight", {16}},
                                                              {"model.layers.3.mlp.up_proj.weight", {24, 16}},
                                                              {"model.norm.weight", {16}},
                                                              {"lm_head.weight", {100, 16}}};
  for (const auto& [name, shape] : of_first) {
    EXPECT_EQ(HolderOf(*first, name, shape), "") << name;
    EXPECT_NE(first->Resolve({name, DType::kBF16, shape}).owner, nullptr) << name;
    EXPECT_EQ(HolderOf(*last, name, shape), "pipeline stage 0") << name;
    EXPECT_EQ(last->Resolve({name, DType::kBF16, shape}).owner, nullptr) << name;
  }
  for (const auto& [name, shape] : of_last) {
    EXPECT_EQ(HolderOf(*first, name, shape), "pipeline stage 1") << name;
    EXPECT_EQ(HolderOf(*last, name, shape), "") << name;
  }
  EXPECT_THAT(ErrorOf([&] { HolderOf(*first, "model.layers.4.input_layernorm.weight", {16}); }, ErrorCode::kNotFound),
              HasSubstr("model.layers.4.input_layernorm.weight"));
}

TEST(StagesOfADecoder, HaveTiedEmbeddingsOnTheFirstAndTheLast) {
  for (int stage = 0; stage < 3; ++stage) {
    const auto model = StageOfLlama(stage, 3, true);
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
      const Resolution to = model->Resolve({name, DType::kBF16, {100, 16}});
      EXPECT_EQ(to.held_by, stage == 1 ? "pipeline stages 0 and 2" : "") << name;
      EXPECT_EQ(to.pieces.size(), stage == 1 ? 0U : 1U) << name;
    }
    EXPECT_EQ(HolderOf(*model, "model.norm.weight", {16}), stage == 2 ? "" : "pipeline stage 2");
  }
}

TEST(StagesOfADecoder, SkipByRuleOnEveryStageAlike) {
  for (int stage = 0; stage < 2; ++stage) {
    const auto model = StageOfLlama(stage, 2, false);
    EXPECT_THAT(model->Resolve({"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {2}}).skip_rule,
                HasSubstr("computed"));
  }
}

}  // namespace
}  // namespace layercast
