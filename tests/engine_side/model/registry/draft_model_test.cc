// The trees of draft models: which layers, where names lead, what is shared with the target, what is refused.
#include "layercast/model/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

ModelConfig Described(const std::string& architecture, const std::string& more) {
  return ModelConfig::Parse("{\"architectures\": [\"" + architecture +
                            R"("], "vocab_size": 100, "hidden_size": 16, "intermediate_size": 24,
                            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                            "torch_dtype": "bfloat16", )" +
                            more + "}");
}

ModelConfig Glm(const std::string& more = R"("num_nextn_predict_layers": 1)") {
  return Described("Glm4MoeForCausalLM",
                   R"("model_type": "glm4_moe", "num_hidden_layers": 3, "n_routed_experts": 4, "num_experts_per_tok": 2,
                      "moe_intermediate_size": 8, )" +
                       more);
}

ModelConfig Llama() { return Described("LlamaForCausalLM", R"("num_hidden_layers": 2)"); }

std::unique_ptr<Module> WithDraft(const ModelConfig& target, const std::optional<ModelConfig>& draft = std::nullopt,
                                  ParallelConfig parallel = {}) {
  return ModelRegistry::Builtin().BuildWithDraft(target, draft, parallel);
}

TEST(DraftModel, LiesBesideItsTargetUnderNamesOfItsOwn) {
  const auto model = WithDraft(Glm());
  const Resolution projection = model->Resolve({"model.layers.3.eh_proj.weight", DType::kBF16, {16, 32}});
  EXPECT_EQ(projection.owner_path, "draft.layers.3.eh_proj");
  EXPECT_FALSE(projection.owner->parameters()[0].quantize);
  const Resolution query = model->Resolve({"model.layers.3.self_attn.q_proj.weight", DType::kBF16, {32, 16}});
  EXPECT_EQ(query.owner_path, "draft.layers.3.self_attn.qkv_proj");
  EXPECT_TRUE(query.owner->parameters()[0].quantize);
  EXPECT_EQ(model->Resolve({"model.layers.2.self_attn.q_proj.weight", DType::kBF16, {32, 16}}).owner_path,
            "model.layers.2.self_attn.qkv_proj");
  EXPECT_EQ(model->Resolve({"model.layers.3.shared_head.norm.weight", DType::kBF16, {16}}).owner_path,
            "draft.layers.3.shared_head.norm");
  EXPECT_THAT(
      ErrorOf([&] { (void)model->Resolve({"model.layers.4.enorm.weight", DType::kBF16, {16}}); }, ErrorCode::kNotFound),
      HasSubstr("model.layers.4.enorm.weight"));
}

TEST(DraftModel, SharesTheEmbeddingAndTheHeadWithItsTarget) {
  const auto model = WithDraft(Glm());
  EXPECT_EQ(model->Resolve({"model.layers.3.embed_tokens.weight", DType::kBF16, {100, 16}}).alias_of,
            "model.embed_tokens.weight");
  EXPECT_EQ(model->Resolve({"model.layers.3.shared_head.head.weight", DType::kBF16, {100, 16}}).alias_of,
            "lm_head.weight");
  const auto tied = WithDraft(Glm(R"("num_nextn_predict_layers": 1, "tie_word_embeddings": true)"));
  EXPECT_EQ(tied->Resolve({"model.layers.3.shared_head.head.weight", DType::kBF16, {100, 16}}).alias_of,
            "model.embed_tokens.weight");
}

TEST(DraftModel, IsNotThereUnlessAskedFor) {
  const auto model = ModelRegistry::Builtin().Build(Glm(), {});
  EXPECT_EQ(model->FindChild(kDraftRoot), nullptr);
  EXPECT_EQ(model->Resolve({"model.layers.3.eh_proj.weight", DType::kBF16, {16, 32}}).skip_rule,
            "a draft layer (MTP) is not served");
}

TEST(DraftModel, OfItsOwnHasItsOwnLayersInFullPrecision) {
  const ModelConfig eagle = Described("LlamaForCausalLMEagle3", R"("num_hidden_layers": 1, "draft_vocab_size": 40)");
  const auto model = WithDraft(Llama(), eagle, {.tp_rank = 1, .tp_size = 2});
  const Resolution key = model->Resolve({"draft.midlayer.self_attn.k_proj.weight", DType::kBF16, {16, 32}});
  EXPECT_EQ(key.owner_path, "draft.layers.0.self_attn.qkv_proj");
  EXPECT_EQ(key.owner->parameters()[0].spec.shape, (Shape{32, 32}));
  EXPECT_FALSE(key.owner->parameters()[0].quantize);
  EXPECT_EQ(model->Resolve({"draft.d2t", DType::kI64, {40}}).owner_path, "draft");
  EXPECT_THAT(model->Resolve({"draft.t2d", DType::kBool, {100}}).skip_rule, HasSubstr("d2t"));
  EXPECT_EQ(model->Resolve({"model.layers.0.mlp.up_proj.weight", DType::kBF16, {24, 16}}).owner_path,
            "model.layers.0.mlp.gate_up_proj");
}

// Whatever the stage calls them by; with the embedding that it shares.
TEST(DraftModel, IsOnTheLastStageOfAPipeline) {
  const auto holder = [](const Module& model, const std::string& name, Shape shape) {
    const Resolution to = model.Resolve({name, DType::kBF16, std::move(shape)});
    return to.owner != nullptr ? to.owner_path : std::string(to.held_by);
  };
  for (const bool tied : {false, true}) {
    const ModelConfig target =
        Glm(std::string(R"("num_nextn_predict_layers": 1, "tie_word_embeddings": )") + (tied ? "true" : "false"));
    for (int stage = 0; stage < 3; ++stage) {
      const auto model = WithDraft(target, std::nullopt, {.pp_rank = stage, .pp_size = 3});
      const bool last = stage == 2;
      const std::string elsewhere = "pipeline stage 2";
      EXPECT_EQ(holder(*model, "model.layers.3.eh_proj.weight", {16, 32}), last ? "draft.layers.3.eh_proj" : elsewhere);
      EXPECT_EQ(holder(*model, "model.embed_tokens.weight", {100, 16}),
                stage == 1 ? "pipeline stages 0 and 2" : "model.embed_tokens");
      EXPECT_EQ(holder(*model, "model.layers.3.embed_tokens.weight", {100, 16}),
                last ? "model.embed_tokens" : elsewhere);
      EXPECT_EQ(holder(*model, "model.layers.3.shared_head.head.weight", {100, 16}), !last  ? elsewhere
                                                                                     : tied ? "model.embed_tokens"
                                                                                            : "lm_head");
    }
  }
  const ModelConfig eagle = Described("LlamaForCausalLMEagle3", R"("num_hidden_layers": 1)");
  const auto first = WithDraft(Llama(), eagle, {.pp_rank = 0, .pp_size = 2});
  EXPECT_EQ(holder(*first, "draft.midlayer.self_attn.k_proj.weight", {16, 32}), "pipeline stage 1");
  EXPECT_EQ(first->Resolve({"draft.embed_tokens.weight", DType::kBF16, {100, 16}}).skip_rule,
            "the draft model embeds as its target does");
}

TEST(DraftModel, ThatCannotBeIsRefused) {
  EXPECT_THAT(ErrorOf([] { WithDraft(Llama()); }, ErrorCode::kUnsupported),
              HasSubstr("no draft model is known for [LlamaForCausalLM], expected one of DeepseekV3ForCausalLM"));
  EXPECT_THAT(ErrorOf([] { WithDraft(Glm(R"("num_nextn_predict_layers": 0)")); }, ErrorCode::kInvalidArgument),
              HasSubstr("num_nextn_predict_layers: expected at least 1 for a draft model, got 0"));
  ModelConfig wide = Described("EagleLlamaForCausalLM", R"("num_hidden_layers": 1)");
  wide.hidden_size = 32;
  EXPECT_THAT(ErrorOf([&] { WithDraft(Llama(), wide); }, ErrorCode::kInvalidArgument),
              HasSubstr("expected the target's 16, got 32"));
}

TEST(DraftModel, NamesTheFieldThatTpDoesNotDivide) {
  const ModelConfig qwen = Described("Qwen3_5ForCausalLM", R"("num_hidden_layers": 1, "hidden_size": 161,
    "partial_rotary_factor": 1.0, "layer_types": ["full_attention"])");
  EXPECT_EQ(ErrorOf([&] { (void)WithDraft(qwen, std::nullopt, {.tp_rank = 0, .tp_size = 2}); }),
            "hidden_size 161 is not divisible by tp_size 2");
}

TEST(DraftModel, OfAHostProgramIsRegisteredOnce) {
  ModelRegistry registry = ModelRegistry::Builtin();
  const DraftFactory factory = [](const ModelConfig&, const ModelConfig&, const ParallelConfig&, DType) {
    return DraftModel{std::make_unique<SharedWithTarget>("Mine", "lm_head"), {}};
  };
  registry.RegisterDraftLayers("LlamaForCausalLM", factory);
  EXPECT_NE(registry.BuildWithDraft(Llama(), std::nullopt, {})->FindChild(kDraftRoot), nullptr);
  EXPECT_THAT(ErrorOf([&] { registry.RegisterDraftLayers("LlamaForCausalLM", factory); }, ErrorCode::kInvalidArgument),
              HasSubstr("LlamaForCausalLM already registered"));
}

}  // namespace
}  // namespace layercast
