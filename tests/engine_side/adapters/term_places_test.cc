// Which rows and columns the terms of a layer have on a rank, and where a slot's factors lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/model/attention.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/linear.h"
#include "layercast/model/mlp.h"
#include "tests/support/filled_slots.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;

ModelConfig FourHeads() {
  ModelConfig config;
  config.hidden_size = 64;
  config.intermediate_size = 96;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 16;
  config.num_hidden_layers = 1;
  config.layer_types = {"full_attention"};
  return config;
}

std::vector<std::string> Described(const Module& module) {
  std::vector<std::string> lines;
  for (const AdapterTerm& term : AdapterTermsOf(module)) {
    lines.push_back(term.layer + " " + term.shard + ": rows " + std::to_string(term.first_row) + " + " +
                    std::to_string(term.rows) + ", columns " + std::to_string(term.columns) +
                    (term.sums ? ", summed" : ""));
  }
  return lines;
}

TEST(AdapterTerms, AFusedLayerHasOneForEachPart) {
  const LayerContext context{.parallel = {}, .dtype = DType::kBF16};
  EXPECT_THAT(Described(Attention(context, FourHeads(), 0, {})),
              ElementsAre("qkv_proj q_proj: rows 0 + 64, columns 64", "qkv_proj k_proj: rows 64 + 32, columns 64",
                          "qkv_proj v_proj: rows 96 + 32, columns 64", "o_proj : rows 0 + 64, columns 64, summed"));
  EXPECT_THAT(
      Described(GatedMlp(context, FourHeads(), false)),
      ElementsAre("gate_up_proj gate_proj: rows 0 + 96, columns 64", "gate_up_proj up_proj: rows 96 + 96, columns 64",
                  "down_proj : rows 0 + 64, columns 96, summed"));
}

// Two key/value heads on four ranks: neighbours hold the same.
TEST(AdapterTerms, ARankHasItsRowsOfBAndItsColumnsOfA) {
  for (int rank = 0; rank < 4; ++rank) {
    const LayerContext context{.parallel = {.tp_rank = rank, .tp_size = 4}, .dtype = DType::kBF16};
    EXPECT_THAT(Described(Attention(context, FourHeads(), 0, {})),
                ElementsAre("qkv_proj q_proj: rows 0 + 16, columns 64", "qkv_proj k_proj: rows 16 + 16, columns 64",
                            "qkv_proj v_proj: rows 32 + 16, columns 64", "o_proj : rows 0 + 64, columns 16, summed"));
  }
}

class WithADraft final : public Module {
 public:
  explicit WithADraft(const LayerContext& context) : Module("WithADraft") {
    AddChild("fc", std::make_unique<ReplicatedLinear>(context, 8, 6, false));
    AddChild(kDraftRoot, std::make_unique<ReplicatedLinear>(context, 8, 6, false));
  }
};

TEST(AdapterTerms, ADraftModelHasNone) {
  EXPECT_THAT(Described(WithADraft(LayerContext{.dtype = DType::kBF16})), ElementsAre("fc : rows 0 + 6, columns 8"));
}

TEST(AdapterSlots, FactorsOfSlotsAndExpertsFollowEachOther) {
  const std::vector<AdapterTerm> terms = {
      {.layer = "proj", .parameter = "weight", .shard = {}, .rows = 5, .columns = 7},
      {.layer = "experts", .parameter = "w2_weight", .shard = "w2", .experts = 3, .rows = 4, .columns = 6}};
  FilledSlots filled(terms, {.slots = 2, .max_rank = 2, .dtype = DType::kBF16});
  const AdapterSlots& slots = filled.slots();
  EXPECT_EQ(AdapterSlots::BytesOf(terms, slots.sizes()), 2U * 2 * 2 * ((5 + 7) + 3 * (4 + 6)));
  const std::vector<CapturedBuffer> buffers = slots.Buffers(1);
  ASSERT_EQ(buffers.size(), 4U);
  EXPECT_EQ(buffers[2].name, "experts.w2_lora_A");
  EXPECT_EQ(buffers[2].shape, (Shape{3, 2, 6}));
  EXPECT_EQ(buffers[3].shape, (Shape{3, 4, 2}));
  EXPECT_EQ(slots.A(0, 1), buffers[0].address);
  EXPECT_EQ(slots.B(0, 1), slots.B(0) + std::ptrdiff_t{5 * 2 * 2});
  EXPECT_EQ(slots.A(1, 1), buffers[2].address);
  EXPECT_EQ(slots.A(1, 1, 2), buffers[2].address + std::ptrdiff_t{2 * 2 * 6 * 2});
  EXPECT_EQ(slots.B(1, 1, 2), buffers[3].address + std::ptrdiff_t{2 * 4 * 2 * 2});
  EXPECT_EQ(slots.first_number(1), 1U);
  EXPECT_EQ(slots.numbers_of_slot(), 4U);
  filled.NumbersOf(1, 1, 2) = {.rank = 2, .scale = 3.0F};
  EXPECT_EQ(slots.NumbersOf(1, 1, 2).rank, 2);
  EXPECT_EQ(slots.NumbersOf(1, 0, 2).rank, 0);
  filled.slots().Clear(1);
  EXPECT_EQ(slots.NumbersOf(1, 1, 2).rank, 0);
}

}  // namespace
}  // namespace layercast::testing
