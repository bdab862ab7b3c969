// What a sequence gets of a block with a state depends on its own tokens alone: not on how they are cut into passes,
// nor on the sequences beside it, nor on one that had its number before. Against transformers the blocks are held by
// test_forward.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "layercast/error.h"
#include "layercast/model/gated_delta_net.h"
#include "layercast/model/mamba_mixer.h"

namespace layercast {
namespace {

constexpr std::int64_t kHidden = 24;
constexpr LayerContext kContext{.dtype = DType::kF32};

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Module>()> make;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

std::unique_ptr<Module> MakeMamba(const MambaOptions& options = {}) {
  constexpr MambaSizes kSizes{.num_heads = 4, .head_dim = 6, .state_size = 5, .num_groups = 2, .conv_kernel = 3};
  return std::make_unique<MambaMixer>(kContext, kSizes, kHidden, options);
}

std::unique_ptr<Module> MakeDeltaNet(DeltaNetRows rows) {
  constexpr DeltaNetSizes kSizes{
      .num_key_heads = 2, .num_value_heads = 6, .key_head_dim = 5, .value_head_dim = 7, .conv_kernel = 3};
  return std::make_unique<GatedDeltaNet>(kContext, kSizes, kHidden, DeltaNetOptions{.rows = rows});
}

class RecurrentBlock : public ::testing::TestWithParam<Kind> {
 protected:
  RecurrentBlock() : module_(GetParam().make()) {
    AddBuffers(*module_, "mixer.");
    CapturedWeights weights(buffers_);
    block_ =
        MakeBlock(DescribeBlock(*module_, "mixer", {weights, rotary_, DType::kF32}), BlockContext{alone_, DType::kF32});
  }

  void AddBuffers(const Module& module, const std::string& path) {
    const auto add = [&](const TensorSpec& spec) {
      std::vector<float>& values = memory_.emplace_back(static_cast<std::size_t>(spec.num_elements()));
      for (float& value : values) value = normal_(random_) * 0.3F;
      buffers_.push_back(
          {path + spec.name, reinterpret_cast<std::byte*>(values.data()), DType::kF32, spec.shape, {}, {}});
    };
    for (const Parameter& parameter : module.parameters()) add(parameter.spec);
    for (const DerivedTensor& derived : module.derived()) {  // what states decay by
      add(derived.spec);
      for (float& value : memory_.back()) value = -std::abs(value);
    }
    for (const auto& [name, child] : module.children()) AddBuffers(*child, path + name + ".");
  }

  // Inputs of one sequence's tokens, the same for the same salt.
  static std::vector<std::vector<float>> Inputs(std::size_t tokens, std::uint32_t salt) {
    std::mt19937 random(salt);
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> rows(tokens, std::vector<float>(kHidden));
    for (auto& row : rows) {
      for (float& value : row) value = normal(random);
    }
    return rows;
  }

  struct Token {
    std::uint64_t sequence;
    std::size_t position;
    const std::vector<float>* input;
  };

  std::vector<std::vector<float>> Run(const std::vector<Token>& tokens) {
    std::vector<TokenRow> rows;
    Activations in(tokens.size(), kHidden), out;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      rows.push_back({.sequence = tokens[i].sequence, .position = tokens[i].position});
      std::ranges::copy(*tokens[i].input, in.row(i));
    }
    block_->Forward(rows, in, out);
    std::vector<std::vector<float>> outputs;
    for (std::size_t i = 0; i < tokens.size(); ++i) outputs.emplace_back(out[i].begin(), out[i].end());
    return outputs;
  }

  std::vector<std::vector<float>> RunWhole(std::uint64_t sequence, const std::vector<std::vector<float>>& inputs) {
    std::vector<Token> tokens;
    for (std::size_t i = 0; i < inputs.size(); ++i) tokens.push_back({sequence, i, &inputs[i]});
    return Run(tokens);
  }

  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
  std::unique_ptr<Module> module_;
  std::deque<std::vector<float>> memory_;
  std::vector<CapturedBuffer> buffers_;
  RotaryTables rotary_{[](const RotaryEmbedding&) { return Rope(); }, DType::kF32};
  SingleRank alone_;
  std::unique_ptr<Block> block_;
};

TEST_P(RecurrentBlock, PiecesInCompanyGiveTheBitsOfTheWhole) {
  const auto first = Inputs(9, 1), second = Inputs(9, 2);
  const auto whole_first = RunWhole(1, first), whole_second = RunWhole(2, second);
  for (std::size_t i = 0; i < first.size(); ++i) {
    const auto pair = Run({{11, i, &first[i]}, {12, i, &second[i]}});
    EXPECT_EQ(pair[0], whole_first[i]) << i;
    EXPECT_EQ(pair[1], whole_second[i]) << i;
  }
  EXPECT_NE(whole_first[3], whole_second[3]);
}

TEST_P(RecurrentBlock, EarlierTokensAreFelt) {
  auto inputs = Inputs(9, 1);
  const auto before = RunWhole(1, inputs);
  inputs[0][0] += 1.0F;
  const auto after = RunWhole(2, inputs);
  EXPECT_NE(before.back(), after.back());
}

TEST_P(RecurrentBlock, ASequenceThatBeginsAnewRemembersNothing) {
  const auto inputs = Inputs(5, 3);
  const auto expected = RunWhole(1, inputs);
  block_->Drop(1);
  EXPECT_EQ(RunWhole(1, inputs), expected);
  block_->DropAll();
  EXPECT_EQ(RunWhole(1, inputs), expected);
}

TEST_P(RecurrentBlock, NothingIsKeptOfASequenceThatWasDropped) {
  const auto inputs = Inputs(5, 3);
  const auto goes_on = [&](std::uint64_t sequence) { return Run({{sequence, 5, inputs.data()}}); };
  for (const std::uint64_t sequence : {1, 2, 3}) RunWhole(sequence, inputs);
  block_->Drop(1);
  EXPECT_THROW(goes_on(1), Error);
  EXPECT_EQ(goes_on(2), goes_on(3));
  block_->DropAll();
  EXPECT_THROW(goes_on(2), Error);
}

TEST_P(RecurrentBlock, WeightsAreReadWhereTheyWereCaptured) {
  const auto inputs = Inputs(5, 3);
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (buffers_[i].name == "mixer.A_log") continue;  // what derives from it is read
    const auto before = RunWhole(1, inputs);
    for (float& value : memory_[i]) value += 0.5F;
    EXPECT_NE(RunWhole(1, inputs), before) << buffers_[i].name;
  }
}

// What is scanned is fp32 until the gated norm has multiplied it by its weight: rounded once, not twice. The mixer's
// other weights are such that x is known, B and C are zero, and out_proj changes nothing.
TEST(MambaBlock, RoundsOnceInItsGatedNorm) {
  const std::unique_ptr<Module> mixer = MakeMamba(MambaOptions{.bias = true});
  std::map<std::string, std::vector<float>> values;
  std::vector<CapturedBuffer> buffers;
  const auto add = [&](const std::string& name, const TensorSpec& spec) {
    std::vector<float>& zeros = values[name];
    zeros.resize(static_cast<std::size_t>(spec.num_elements()));
    buffers.push_back({name, reinterpret_cast<std::byte*>(zeros.data()), DType::kF32, spec.shape, {}, {}});
  };
  for (const Parameter& parameter : mixer->parameters()) add("mixer." + parameter.spec.name, parameter.spec);
  for (const DerivedTensor& derived : mixer->derived()) add("mixer." + derived.spec.name, derived.spec);
  for (const auto& [name, child] : mixer->children()) {
    for (const Parameter& parameter : child->parameters())
      add("mixer." + name + "." + parameter.spec.name, parameter.spec);
  }
  std::vector<float> x(kHidden), weight(kHidden);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 0.37F * static_cast<float>(i % 7) - 0.9F;
    weight[i] = 1.0F + 0.013F * static_cast<float>(i);
    values["mixer.conv1d.bias"][i] = x[i];
    values["mixer.in_proj.bias"][i] = 1.0F;  // the gate
    values["mixer.out_proj.weight"][i * kHidden + i] = 1.0F;
  }
  std::ranges::copy(weight, values["mixer.norm.weight"].begin());
  std::ranges::fill(values["mixer.D"], 1.0F);
  CapturedWeights weights(buffers);
  SingleRank alone;
  RotaryTables rotary([](const RotaryEmbedding&) { return Rope(); }, DType::kBF16);
  const auto block =
      MakeBlock(DescribeBlock(*mixer, "mixer", {weights, rotary, DType::kBF16}), BlockContext{alone, DType::kBF16});
  const TokenRow row;
  Activations out;
  block->Forward({&row, 1}, Activations(1, kHidden), out);

  RoundTo(DType::kBF16, x);
  Activate(Activation::kSilu, x, DType::kBF16);
  std::vector<float> expected(kHidden), twice(kHidden);
  for (std::size_t group = 0; group < 2; ++group) {
    const auto of_group = std::span(x).subspan(group * 12, 12);
    const double silu = 1.0 / (1.0 + std::exp(-1.0));
    double mean = 0.0;
    for (const float value : of_group) mean += value * silu * value * silu / 12.0;
    for (std::size_t i = group * 12; i < (group + 1) * 12; ++i) {
      auto normed = static_cast<float>(x[i] * silu / std::sqrt(mean + MambaOptions().norm_epsilon));
      expected[i] = weight[i] * normed;
      RoundTo(DType::kBF16, {&normed, 1});
      twice[i] = weight[i] * normed;
    }
  }
  RoundTo(DType::kBF16, expected);
  RoundTo(DType::kBF16, twice);
  EXPECT_NE(expected, twice);
  EXPECT_EQ(std::vector<float>(out[0].begin(), out[0].end()), expected);
}

INSTANTIATE_TEST_SUITE_P(OfEveryKind, RecurrentBlock,
                         ::testing::Values(Kind{"Mamba", [] { return MakeMamba(); }},
                                           Kind{"DeltaNetByKeyHead",
                                                [] { return MakeDeltaNet(DeltaNetRows::kByKeyHead); }},
                                           Kind{"DeltaNetByPart", [] { return MakeDeltaNet(DeltaNetRows::kByPart); }}),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace layercast
