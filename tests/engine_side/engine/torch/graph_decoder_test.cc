// Forward passes by a decode graph, on the CPU: against the decoder, whatever the sequences, their pieces and the slots
// that they get.
#include "engine_side/engine/torch/graph_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/built_in/rope.h"
#include "layercast/error.h"
#include "tests/engine_side/engine/torch/decode_rig.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

class GraphDecoderTest : public ::testing::TestWithParam<DecodeRig::Model> {
 protected:
  GraphDecoderTest() {
    rig_.Reload(1);
    decoder_ = std::make_unique<GraphDecoder>(rig_.tree(), ParallelConfig(), rig_.engine().Buffers(), MakeRope,
                                              DecodeRig::shape(), &rig_.adapters().slots());
  }

  std::vector<float> Forward(std::uint64_t sequence, const Tokens& tokens, bool all_logits = true) {
    const SequenceStep step{sequence, tokens, all_logits};
    return decoder_->Forward({&step, 1}).values;
  }

  DecodeRig rig_{"none", "float32", GetParam()};
  std::unique_ptr<GraphDecoder> decoder_;
};

TEST_P(GraphDecoderTest, ComputesWhatTheDecoderDoesAllSequencesAtOnce) {
  std::vector<SequenceStep> steps;
  for (const Tokens& tokens : DecodeRig::sequences()) steps.push_back({steps.size(), tokens, true});
  EXPECT_LT(RelativeDifference(decoder_->Forward(steps).values, rig_.DecoderLogits()), 1e-5F);
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(decoder_->Length(i), DecodeRig::sequences()[i].size());
}

TEST_P(GraphDecoderTest, ComputesEachSequenceWithItsOwnAdapter) {
  rig_.adapters().Fill(0, {.seed = 1, .rank = 4});
  rig_.adapters().Fill(1, {.seed = 2, .rank = 6});
  const std::vector<std::int32_t> slots = {1, -1, 0};
  std::vector<SequenceStep> steps;
  for (const Tokens& tokens : DecodeRig::sequences()) {
    steps.push_back({steps.size(), tokens, true, slots[steps.size()]});
  }
  EXPECT_LT(RelativeDifference(decoder_->Forward(steps).values, rig_.DecoderLogits(slots)), 1e-5F);
  const SequenceStep none{7, DecodeRig::sequences()[0], false, 3};
  EXPECT_EQ(ErrorOf([&] { (void)decoder_->Forward({&none, 1}); }, ErrorCode::kInvalidArgument),
            "sequence 7: there is no adapter slot 3, this engine has 3");
}

TEST_P(GraphDecoderTest, TakesTokensOfAllSequencesInOneStep) {
  std::vector<SequenceStep> steps;
  for (const Tokens& tokens : DecodeRig::sequences()) steps.push_back({steps.size(), tokens, false});
  (void)decoder_->Forward(steps);
  // 18 tokens in steps of 5; where layers are recurrent, as many steps as the longest sequence has tokens.
  EXPECT_EQ(decoder_->times_queued(), GetParam() == DecodeRig::Model::kDense ? 4U : 11U);
}

TEST_P(GraphDecoderTest, ASequenceMayBeAskedForTwiceAtOnce) {
  const Tokens& tokens = DecodeRig::sequences()[0];
  const std::span<const std::int32_t> all = tokens;
  const std::vector<SequenceStep> steps = {{0, all.first(4), true}, {1, all.first(3), true}, {0, all.subspan(4), true}};
  const std::vector<float> got = decoder_->Forward(steps).values;
  const std::vector<float> whole = Forward(2, tokens);
  const auto vocabulary = static_cast<std::ptrdiff_t>(whole.size() / tokens.size());
  std::vector<float> expected(whole.begin(), whole.begin() + 4 * vocabulary);
  expected.insert(expected.end(), whole.begin(), whole.begin() + 3 * vocabulary);
  expected.insert(expected.end(), whole.begin() + 4 * vocabulary, whole.end());
  EXPECT_LT(RelativeDifference(got, expected), 1e-5F);
}

TEST_P(GraphDecoderTest, GivesTheLastTokensLogitsHoweverTheTokensWereCut) {
  const Tokens& tokens = DecodeRig::sequences()[0];
  const std::vector<float> all = Forward(0, tokens);
  const std::size_t vocabulary = all.size() / tokens.size();
  std::vector<float> in_pieces = Forward(1, {tokens.begin(), tokens.begin() + 7}, false);
  const std::vector<float> rest = Forward(1, {tokens.begin() + 7, tokens.end()}, false);
  EXPECT_EQ(in_pieces.size(), vocabulary);
  const auto logits_of = [&](std::size_t token) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(token * vocabulary);
    return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(vocabulary));
  };
  EXPECT_LT(RelativeDifference(in_pieces, logits_of(6)), 1e-5F);
  EXPECT_LT(RelativeDifference(rest, logits_of(tokens.size() - 1)), 1e-5F);
}

TEST_P(GraphDecoderTest, ASequenceThatGoesMakesRoomForAnother) {
  const std::vector<float> first = Forward(0, DecodeRig::sequences()[0]);
  Forward(1, {1, 2});
  Forward(2, {3});
  EXPECT_EQ(ErrorOf([&] { Forward(7, {4}); }, ErrorCode::kResourceExhausted),
            "sequence 7 has no slot: the decode graph holds 3 sequences at once");
  EXPECT_EQ(decoder_->Length(7), 0U);
  Forward(1, {3});  // those that have one go on
  EXPECT_EQ(decoder_->Length(1), 3U);
  decoder_->Drop(1);
  EXPECT_EQ(decoder_->Length(1), 0U);
  EXPECT_EQ(Forward(7, DecodeRig::sequences()[0]), first);  // whatever lay in the slot
  decoder_->DropAll();
  for (const std::uint64_t sequence : {10, 11, 12}) EXPECT_EQ(Forward(sequence, DecodeRig::sequences()[0]), first);
}

TEST_P(GraphDecoderTest, RefusesAStepAsAWholeBeforeAnythingChanges) {
  Forward(0, {1});
  const Tokens fine = {2};
  const auto error = [&](const Tokens& tokens, ErrorCode code) {
    const std::vector<SequenceStep> steps = {{0, fine}, {5, tokens}};
    return ErrorOf([&] { (void)decoder_->Forward(steps); }, code);
  };
  EXPECT_EQ(error({}, ErrorCode::kInvalidArgument), "sequence 5: no tokens");
  EXPECT_EQ(error({50}, ErrorCode::kInvalidArgument), "sequence 5: token 50 is outside the vocabulary of 50");
  EXPECT_EQ(error(Tokens(17), ErrorCode::kResourceExhausted),
            "sequence 5 would be 17 tokens long, the model's limit is 16");
  EXPECT_EQ(decoder_->Length(0), 1U);
  EXPECT_EQ(decoder_->Length(5), 0U);
}

INSTANTIATE_TEST_SUITE_P(OfModels, GraphDecoderTest,
                         ::testing::Values(DecodeRig::Model::kDense, DecodeRig::Model::kHybrid), [](const auto& model) {
                           return model.param == DecodeRig::Model::kDense ? "Dense" : "Hybrid";
                         });

}  // namespace
}  // namespace layercast::testing
