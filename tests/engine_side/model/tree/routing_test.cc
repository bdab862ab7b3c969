// From names to layers: whole path segments, first match wins, and the same answer for a name that is mapped already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/embedding.h"
#include "layercast/model/linear.h"
#include "layercast/model/norm.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::Tree;

const LayerContext kContext{{0, 1}, DType::kF32, true};

std::unique_ptr<Tree> AttentionTree() {
  auto attention = std::make_unique<Tree>("Attention");
  attention->Add("qkv_proj", std::make_unique<QKVParallelLinear>(kContext, 8, AttentionHeads{4, 2, 2, 0}, true));
  attention->Add("o_proj", std::make_unique<RowParallelLinear>(kContext, 8, 8, false));
  auto mlp = std::make_unique<Tree>("Mlp");
  mlp->Add("gate_up_proj", std::make_unique<MergedColumnParallelLinear>(
                               kContext, 8, std::vector<MergedShard>{{"gate_proj", 6}, {"up_proj", 6}}, false));
  auto root = std::make_unique<Tree>("RootForCausalLM");
  root->Add("self_attn", std::move(attention));
  root->Add("mlp", std::move(mlp));
  root->Add("norm", std::make_unique<RMSNorm>(kContext, 8));
  return root;
}

// "path: shard shard ..." of where a name goes.
std::string Where(const Module& root, const std::string& name, Shape shape) {
  const Resolution to = root.Resolve({name, DType::kF32, std::move(shape)});
  std::string text = to.owner_path + ":";
  for (const PlacedPiece& piece : to.pieces) text += " " + std::string(piece.shard_id);
  return text;
}

TEST(Routing, SendsShardsToTheLayerThatDeclaresThem) {
  const auto root = AttentionTree();
  EXPECT_EQ(Where(*root, "self_attn.q_proj.weight", {8, 8}), "self_attn.qkv_proj: q");
  EXPECT_EQ(Where(*root, "self_attn.k_proj.weight", {4, 8}), "self_attn.qkv_proj: k");
  EXPECT_EQ(Where(*root, "self_attn.v_proj.bias", {4}), "self_attn.qkv_proj: v");
  EXPECT_EQ(Where(*root, "self_attn.o_proj.weight", {8, 8}), "self_attn.o_proj: ");
  EXPECT_EQ(Where(*root, "mlp.gate_proj.weight", {6, 8}), "mlp.gate_up_proj: 0");
  EXPECT_EQ(Where(*root, "mlp.up_proj.weight", {6, 8}), "mlp.gate_up_proj: 1");
}

// `qkv_proj` ends in `v_proj` and `gate_up_proj` in `up_proj`: matching substrings would rename them again.
TEST(Routing, LeavesANameThatIsFusedOnDiskAsItIs) {
  const auto root = AttentionTree();
  EXPECT_EQ(Where(*root, "self_attn.qkv_proj.weight", {16, 8}), "self_attn.qkv_proj: q k v");
  EXPECT_EQ(Where(*root, "self_attn.qkv_proj.bias", {16}), "self_attn.qkv_proj: q k v");
  EXPECT_EQ(Where(*root, "mlp.gate_up_proj.weight", {12, 8}), "mlp.gate_up_proj: 0 1");
}

TEST(Routing, AppliesOnlyAtTheLevelOfTheParent) {
  const auto root = AttentionTree();
  for (const char* name :
       {"q_proj.weight", "mlp.q_proj.weight", "self_attn.gate_proj.weight", "self_attn.my_q_proj.weight",
        "self_attn.q_proj2.weight", "self_attn.qkv_proj.q_proj.weight"}) {
    EXPECT_THAT(ErrorOf([&] { (void)root->Resolve({name, DType::kF32, {8, 8}}); }, ErrorCode::kNotFound),
                HasSubstr("There is no module or parameter named '" + std::string(name) + "' in RootForCausalLM"));
  }
}

TEST(Routing, LetsTheFirstThatDeclaresANameHaveIt) {
  Tree root;
  const std::vector<MergedShard> shards = {{"up_proj", 4}};
  root.Add("first", std::make_unique<MergedColumnParallelLinear>(kContext, 8, shards, false));
  root.Add("second", std::make_unique<MergedColumnParallelLinear>(kContext, 8, shards, false));
  EXPECT_EQ(Where(root, "up_proj.weight", {4, 8}), "first: 0");
}

TEST(Routing, LetsAModulesOwnNameComeBeforeADeclaredOne) {
  const std::vector<MergedShard> shards = {{"up_proj", 4}, {"own", 4}};
  for (const bool declared_first : {true, false}) {
    Tree root;
    if (!declared_first) root.Add("up_proj", std::make_unique<ColumnParallelLinear>(kContext, 8, 4, false));
    root.Add("fused", std::make_unique<MergedColumnParallelLinear>(kContext, 8, shards, false));
    if (declared_first) root.Add("up_proj", std::make_unique<ColumnParallelLinear>(kContext, 8, 4, false));
    EXPECT_EQ(Where(root, "up_proj.weight", {4, 8}), "up_proj: ");
    EXPECT_EQ(Where(root, "own.weight", {4, 8}), "fused: 1");
  }
}

TEST(Routing, SaysWhichLayerExpectedWhat) {
  const auto root = AttentionTree();
  EXPECT_EQ(
      ErrorOf([&] { (void)root->Resolve({"mlp.up_proj.weight", DType::kBF16, {6, 4}}); }, ErrorCode::kInvalidArgument),
      "layer mlp.gate_up_proj: 'mlp.up_proj.weight' expected [6, 8] f32, got [6, 4] bf16");
  EXPECT_EQ(
      ErrorOf([&] { (void)root->Resolve({"norm.weight", DType::kF32, {2, 2, 2, 2, 2}}); }, ErrorCode::kInvalidArgument),
      "layer norm: 'norm.weight' expected [8] f32, got [2, 2, 2, 2, 2] f32");
}

TEST(Routing, NamesWhatIsThereToWhoAsksForWhatIsNot) {
  const auto root = AttentionTree();
  EXPECT_EQ(
      ErrorOf([&] { (void)root->Resolve({"self_attn.o_proj.bias", DType::kF32, {8}}); }, ErrorCode::kNotFound),
      "There is no module or parameter named 'self_attn.o_proj.bias' in RootForCausalLM. The available parameters "
      "belonging to self_attn.o_proj (RowParallelLinear) are: {weight}");
  EXPECT_THAT(ErrorOf([&] { (void)root->Resolve({"self_attn.sinks", DType::kF32, {8}}); }, ErrorCode::kNotFound),
              HasSubstr("belonging to self_attn (Attention) are: {qkv_proj.weight, qkv_proj.bias, o_proj.weight}"));
  EXPECT_EQ(ErrorOf([&] { (void)root->Resolve({"norm.weight.deep", DType::kF32, {8}}); }, ErrorCode::kNotFound),
            "Attempted to load nested weight 'norm.weight.deep' into a single parameter 'norm.weight'");
}

TEST(Routing, RefusesNamesThatAreNoNames) {
  const auto root = AttentionTree();
  for (const char* name : {"", ".", "norm", "norm.", ".norm.weight", "norm..weight", "self_attn", "weight"}) {
    EXPECT_THROW((void)root->Resolve({name, DType::kF32, {8}}), Error) << name;
  }
}

TEST(Routing, SkipsBelowTheModuleThatDeclaresTheRule) {
  class Skipping final : public Tree {
   public:
    std::span<const SkipRule> skip_rules() const override { return rules_; }

   private:
    const std::vector<SkipRule> rules_ = {{"rotary_emb.inv_freq", "computed"}};
  };
  Tree root;
  root.Add("skips", std::make_unique<Skipping>());
  root.Add("takes", std::make_unique<Tree>());
  EXPECT_EQ(root.Resolve({"skips.a.b.rotary_emb.inv_freq", DType::kF32, {2}}).skip_rule, "computed");
  EXPECT_EQ(root.Resolve({"skips.rotary_emb.inv_freq", DType::kF32, {2}}).owner, nullptr);
  EXPECT_THROW((void)root.Resolve({"takes.rotary_emb.inv_freq", DType::kF32, {2}}), Error);
  EXPECT_THROW((void)root.Resolve({"skips.x_rotary_emb.inv_freq", DType::kF32, {2}}), Error);
}

TEST(Routing, ResolvesATiedHeadToItsOwner) {
  Tree root;
  auto model = std::make_unique<Tree>();
  model->Add("embed_tokens", std::make_unique<VocabParallelEmbedding>(kContext, 64, 4));
  root.Add("model", std::move(model));
  root.Add("lm_head", std::make_unique<TiedLMHead>("model.embed_tokens"));
  const Resolution to = root.Resolve({"lm_head.weight", DType::kF32, {64, 4}});
  EXPECT_EQ(to.alias_of, "model.embed_tokens.weight");
  EXPECT_EQ(to.owner_path, "model.embed_tokens");
  EXPECT_EQ(to.pieces.size(), 1U);
  EXPECT_THROW((void)root.Resolve({"lm_head.bias", DType::kF32, {64}}), Error);
  EXPECT_EQ(root.Resolve({"model.embed_tokens.weight", DType::kF32, {64, 4}}).alias_of, "");
}

TEST(Module, RefusesANameThatIsTakenOrIsAPath) {
  Tree root;
  root.Add("norm", std::make_unique<RMSNorm>(kContext, 8));
  EXPECT_THROW(root.Add("norm", std::make_unique<RMSNorm>(kContext, 8)), Error);
  EXPECT_THROW(root.Add("a.b", std::make_unique<RMSNorm>(kContext, 8)), Error);
  EXPECT_THROW(root.Add("", std::make_unique<RMSNorm>(kContext, 8)), Error);
}

}  // namespace
}  // namespace layercast
