// What descriptions say of operands: their order, what they are rounded to, and where adapters add to them. That both
// forward passes compute what is described is for their own tests.
#include "engine_side/engine/blocks/block_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "layercast/model/norm.h"
#include "tests/support/error_of.h"
#include "tests/support/filled_slots.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;

constexpr LayerContext kContext{.dtype = DType::kBF16};

ModelConfig Config() {
  ModelConfig config;
  config.hidden_size = 24;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 10;
  config.num_hidden_layers = 1;
  config.layer_types = {"full_attention"};
  return config;
}

// A module as "block", over buffers of its own.
class Described {
 public:
  explicit Described(const Module& module) : block_(Describe(module)) {}
  const BlockDescription& block() const { return block_; }
  // The layer whose adapters add to an operand, and the parts of it.
  std::string AdaptersOf(const LinearOperand& linear) const {
    std::string names;
    for (std::size_t i = 0; i < linear.adapter.count; ++i) {
      const AdapterTerm& term = adapters_->slots().terms()[linear.adapter.first + i];
      names += (i == 0 ? term.layer + "." : " ") + term.shard;
    }
    return names;
  }

 private:
  void AddBuffers(const Module& module, const std::string& path) {
    for (const Parameter& parameter : module.parameters()) {
      std::vector<std::byte>& bytes = memory_.emplace_back(static_cast<std::size_t>(parameter.spec.num_bytes()));
      buffers_.push_back(
          {path + "." + parameter.spec.name, bytes.data(), parameter.spec.dtype, parameter.spec.shape, {}, {}});
    }
    for (const auto& [name, child] : module.children()) AddBuffers(*child, path + "." + name);
  }

  BlockDescription Describe(const Module& module) {
    AddBuffers(module, "block");
    CapturedWeights weights(buffers_);
    std::vector<AdapterTerm> terms = AdapterTermsOf(module);
    for (AdapterTerm& term : terms) term.layer.insert(0, "block.");
    adapters_ = std::make_unique<FilledSlots>(std::move(terms), AdapterSlotSizes{.slots = 1});
    AdapterLookup lookup(&adapters_->slots(), {});
    BlockDescription description =
        DescribeBlock(module, "block", {weights, rotary_, kContext.dtype, "the test", &lookup});
    weights.CheckAllUsed();
    lookup.CheckAllUsed();
    return description;
  }

  std::deque<std::vector<std::byte>> memory_;
  std::vector<CapturedBuffer> buffers_;
  RotaryTables rotary_{[](const RotaryEmbedding& embedding) {
                         return Rope{std::vector<float>(static_cast<std::size_t>(embedding.dim / 2)), 1.0F};
                       },
                       kContext.dtype};
  std::unique_ptr<FilledSlots> adapters_;
  BlockDescription block_;
};

TEST(BlockDescription, AttentionHasItsQueriesKeysAndValuesInOneProjection) {
  const Described described(Attention(kContext, Config(), 0, {.qk_norm = true, .output_gate = true}));
  const auto& attention = std::get<AttentionDescription>(described.block());
  EXPECT_EQ(described.AdaptersOf(attention.qkv_proj), "block.qkv_proj.q_proj k_proj v_proj");
  EXPECT_EQ(described.AdaptersOf(attention.o_proj), "block.o_proj.");
  EXPECT_EQ(attention.query_stride(), 20);
  EXPECT_EQ(attention.qkv_proj.weight.rows, 4U * 20 + 2 * 2 * 10);
  EXPECT_EQ(attention.rotary->pairs(), 5U);
  EXPECT_EQ(attention.q_norm->total_size, 0);  // over each head
  EXPECT_FALSE(attention.sinks);
}

TEST(BlockDescription, AdaptersAddToRoutersAndToEachExpertAndExpertsAreSummedBeforeTheyAreRounded) {
  MoeConfig moe;
  moe.num_experts = 3;
  moe.num_experts_per_tok = 2;
  moe.intermediate_size = 14;
  moe.shared_intermediate_size = 18;
  const MoeOptions options{.routing = {.fp32_logits = true}, .shared_name = "shared_expert", .shared_gate = true};
  const Described described(MixtureOfExperts(kContext, Config(), moe, options));
  const auto& mixture = std::get<MoeDescription>(described.block());
  EXPECT_EQ(described.AdaptersOf(mixture.router.logits), "block.gate.");
  EXPECT_EQ(mixture.router.logits.dtype, DType::kF32);
  EXPECT_EQ(mixture.router.routing.top_k, 2);
  std::vector<std::size_t> experts;
  for (const MlpDescription& expert : mixture.experts) {
    EXPECT_EQ(described.AdaptersOf(expert.up), "block.experts.w1 w3");
    EXPECT_EQ(described.AdaptersOf(expert.down), "block.experts.w2");
    experts.push_back(expert.up.adapter.expert);
    EXPECT_EQ(expert.up.dtype, DType::kBF16);
    EXPECT_EQ(expert.down.dtype, DType::kF32);
  }
  EXPECT_THAT(experts, ElementsAre(0, 1, 2));
  EXPECT_EQ(described.AdaptersOf(mixture.shared->down), "block.shared_expert.down_proj.");
  EXPECT_EQ(described.AdaptersOf(*mixture.shared_gate), "block.shared_expert_gate.");
  EXPECT_EQ(mixture.shared->down.dtype, DType::kBF16);
}

TEST(BlockDescription, RefusesAdaptersOfWhatNothingComputes) {
  std::vector<AdapterTerm> terms = {
      {.layer = "block.zz_proj", .parameter = "weight", .shard = {}, .rows = 2, .columns = 2}};
  const FilledSlots filled(std::move(terms), {.slots = 1});
  AdapterLookup lookup(&filled.slots(), {});
  EXPECT_TRUE(lookup.Find("block.o_proj").empty());
  EXPECT_EQ(ErrorOf([&] { lookup.CheckAllUsed(); }, ErrorCode::kUnsupported),
            "the built-in engine's forward pass does not know what adapters of 'block.zz_proj.weight' would add to");
  EXPECT_EQ(ErrorOf([&] { AdapterLookup(&filled.slots(), {Device::Kind::kCuda, 0}); }, ErrorCode::kUnsupported),
            "the adapter slots are on another device than the weights");
}

TEST(BlockDescription, RefusesAModuleThatIsNoBlockInTheNameOfThePass) {
  EXPECT_EQ(ErrorOf([] { Described(RMSNorm(kContext, 8)); }, ErrorCode::kUnsupported),
            "the test cannot compute block (RMSNorm)");
}

}  // namespace
}  // namespace layercast::testing
