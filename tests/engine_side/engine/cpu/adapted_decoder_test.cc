// The decoder with adapters: what a sequence's bits depend on, ranks, and the two ends, embedding and head. What is
// computed as a whole is held against merged weights in tests/engine_side/engine/built_in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine_side/engine/cpu/cpu_decoder.h"
#include "engine_side/engine/ranks/shared_memory_collective.h"
#include "tests/engine_side/engine/cpu/tiny_model.h"
#include "tests/support/error_of.h"
#include "tests/support/filled_slots.h"

namespace layercast::testing {
namespace {

using PromptTokens = std::vector<std::int32_t>;

PromptTokens PromptOf(std::size_t count, std::int32_t salt) {
  PromptTokens tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>((i * 37 + i * i * 5) % 101);
  for (auto& token : tokens) token = (token + salt * 17) % 101;
  return tokens;
}

const std::vector<TinyOptions> kAdaptedKinds = {
    {},
    {.dtype = DType::kBF16, .qk_norm = false, .tied = true},
    {.dtype = DType::kBF16, .scale = TinyScale::kRow, .window = 4},
    {.dtype = DType::kF32, .experts = true},
    {.dtype = DType::kBF16, .bias = false, .experts = true},
};

bool IsNoOutput(const AdapterTerm& term) { return term.layer.find("o_proj") == std::string::npos; }

// A model's rank, and slots for it.
struct AdaptedRank {
  AdaptedRank(const TinyOptions& options, const ParallelConfig& parallel, Collective& collective, std::size_t slots = 9)
      : model(options, parallel),
        filled(
            AdapterTermsOf(model.tree()), {.slots = slots, .max_rank = 12, .dtype = options.dtype},
            [this](const AdapterTerm& term, std::int64_t row) { return RowOf(term, row); },
            [this](const AdapterTerm& term, std::int64_t column) { return ColumnOf(term, column); }),
        decoder(model.tree(), parallel, model.buffers(), {collective}, TinyRope, std::nullopt, &filled.slots()) {}

  std::vector<float> Run(std::uint64_t sequence, const PromptTokens& tokens, std::int32_t adapter, bool all = true) {
    const SequenceStep step{sequence, tokens, all, adapter};
    return decoder.Forward({&step, 1}).values;
  }

  // The columns of an embedding's factor are rows of its weight, and its rows columns.
  std::int64_t RowOf(const AdapterTerm& term, std::int64_t row) const {
    const TinyModel::Places& places = PlacesOf(term);
    return Signed((term.lookup ? places.columns : places.rows).at(static_cast<std::size_t>(term.first_row + row)));
  }
  std::int64_t ColumnOf(const AdapterTerm& term, std::int64_t column) const {
    const TinyModel::Places& places = PlacesOf(term);
    return Signed((term.lookup ? places.rows : places.columns).at(static_cast<std::size_t>(column)));
  }
  const TinyModel::Places& PlacesOf(const AdapterTerm& term) const {
    const bool tied = term.layer == "lm_head" && !model.tree().FindChild("lm_head")->tied_to().empty();
    return model.places((tied ? "model.embed_tokens" : term.layer) + "." + term.parameter);
  }
  static std::int64_t Signed(std::size_t place) { return static_cast<std::int64_t>(place); }

  TinyModel model;
  FilledSlots filled;
  Decoder decoder;
};

struct Alone {
  SingleRank collective;
};

struct AdaptedModel : Alone, AdaptedRank {
  explicit AdaptedModel(const TinyOptions& options) : AdaptedRank(options, {}, collective) {}
};

TEST(AdaptedDecoder, ASequenceGetsTheSameBitsAloneAndBesideOtherAdaptersAndInAnotherSlot) {
  for (const TinyOptions& options : kAdaptedKinds) {
    AdaptedModel rank(options);
    for (std::size_t slot = 0; slot < 8; ++slot) {
      rank.filled.Fill(slot, {.seed = slot, .rank = 1 + static_cast<std::int32_t>(slot), .has = IsNoOutput});
    }
    rank.filled.Fill(8, {.seed = 2, .rank = 3, .has = IsNoOutput});  // as slot 2
    std::vector<PromptTokens> prompts;
    for (std::int32_t i = 0; i < 10; ++i) prompts.push_back(PromptOf(3 + static_cast<std::size_t>(i), i));
    std::vector<SequenceStep> steps;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      steps.push_back({100 + i, prompts[i], false, static_cast<std::int32_t>(i) - 1});
    }
    const Logits together = rank.decoder.Forward(steps);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<float> alone = rank.Run(i, prompts[i], static_cast<std::int32_t>(i) - 1, false);
      ASSERT_EQ(std::memcmp(alone.data(), together.row(i).data(), alone.size() * sizeof(float)), 0) << i;
    }
    EXPECT_EQ(rank.Run(200, prompts[3], 8), rank.Run(201, prompts[3], 2));
    EXPECT_NE(rank.Run(202, prompts[3], 8), rank.Run(203, prompts[3], -1));
    // One more token for some: now in another company.
    const PromptTokens next = {5};
    steps.clear();
    for (std::size_t i = 0; i < prompts.size(); i += 3) {
      steps.push_back({100 + i, next, false, static_cast<std::int32_t>(i) - 1});
    }
    const Logits later = rank.decoder.Forward(steps);
    for (std::size_t i = 0; i < later.rows(); ++i) {
      const std::vector<float> alone = rank.Run(3 * i, next, static_cast<std::int32_t>(3 * i) - 1);
      ASSERT_EQ(std::memcmp(alone.data(), later.row(i).data(), alone.size() * sizeof(float)), 0) << i;
    }
  }
}

TEST(AdaptedDecoder, ASequenceOfTheBaseGetsTheBitsOfADecoderWithoutSlots) {
  for (const TinyOptions& options : kAdaptedKinds) {
    AdaptedModel rank(options);
    Decoder without(rank.model.tree(), {}, rank.model.buffers(), {rank.collective}, TinyRope);
    const PromptTokens tokens = PromptOf(11, 4), other = PromptOf(6, 2);
    const SequenceStep step{0, tokens, true};
    const std::vector<float> expected = without.Forward({&step, 1}).values;
    rank.filled.FillWithNaN(0);  // free
    rank.filled.Fill(1, {.rank = 5});
    const std::vector<SequenceStep> mixed = {{1, other, false, 1}, {0, tokens, true, -1}, {2, other, false, 1}};
    const std::vector<float> got = rank.decoder.Forward(mixed).values;
    ASSERT_EQ(std::memcmp(got.data() + 101, expected.data(), expected.size() * sizeof(float)), 0);
    EXPECT_EQ(rank.Run(3, tokens, 0), expected);  // a slot that holds nothing
  }
}

TEST(AdaptedDecoder, ReadsWhatASlotHoldsAtEachPass) {
  AdaptedModel rank({});
  const PromptTokens tokens = PromptOf(7, 1);
  const std::vector<float> base = rank.Run(0, tokens, 4);
  rank.filled.Fill(4, {.seed = 1});
  const std::vector<float> first = rank.Run(1, tokens, 4);
  EXPECT_NE(first, base);
  rank.filled.Fill(4, {.seed = 2, .rank = 12});
  EXPECT_NE(rank.Run(2, tokens, 4), first);
  rank.filled.Fill(4, {.seed = 1});
  EXPECT_EQ(rank.Run(3, tokens, 4), first);
  rank.filled.slots().Clear(4);
  EXPECT_EQ(rank.Run(4, tokens, 4), base);
}

// Each adapter alone, and the base, all in one pass.
std::vector<std::vector<float>> RunAdaptedRanks(const TinyOptions& options, int tp_size) {
  CollectiveSegment segment = CollectiveSegment::Create(tp_size, 512);
  std::vector<std::vector<float>> logits(static_cast<std::size_t>(tp_size));
  std::vector<std::jthread> threads;
  for (int index = 0; index < tp_size; ++index) {
    threads.emplace_back([&, index] {
      const ParallelConfig parallel{.tp_rank = index, .tp_size = tp_size};
      SegmentSeat seat(segment, index);
      SharedMemoryCollective collective(seat, parallel, std::chrono::seconds(60));
      AdaptedRank rank(options, parallel, collective, 3);
      rank.filled.Fill(0, {.seed = 7, .rank = 3, .scale = 0.8F});
      rank.filled.Fill(1, {.seed = 9, .rank = 12, .scale = 1.1F, .has = IsNoOutput});
      const std::vector<PromptTokens> prompts = {PromptOf(9, 6), PromptOf(5, 1), PromptOf(4, 3)};
      const std::vector<SequenceStep> steps = {
          {0, prompts[0], true, 0}, {1, prompts[1], true, -1}, {2, prompts[2], true, 1}};
      logits[static_cast<std::size_t>(index)] = rank.decoder.Forward(steps).values;
    });
  }
  threads.clear();
  return logits;
}

TEST(AdaptedDecoder, RanksAgreeBitForBitAndWithOneRankUpToRounding) {
  for (const TinyOptions& options : {TinyOptions{.dtype = DType::kF32},
                                     {.dtype = DType::kF32, .tied = true},
                                     {.dtype = DType::kF32, .experts = true}}) {
    const std::vector<float> expected = RunAdaptedRanks(options, 1)[0];
    float largest = 0.0F;
    for (const float logit : expected) largest = std::max(largest, std::fabs(logit));
    for (const int tp_size : {2, 4}) {  // 4: key/value heads are replicated
      const auto logits = RunAdaptedRanks(options, tp_size);
      for (const auto& of_rank : logits) EXPECT_EQ(of_rank, logits[0]);
      ASSERT_EQ(logits[0].size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(logits[0][i], expected[i], 1e-5F * largest) << i;
    }
  }
}

// weight [rows, columns] += scale * B A, or of an embedding scale * A^T B^T.
void MergeInto(const CapturedBuffer& weight, const FilledSlots& filled, const std::string& layer) {
  const auto terms = filled.slots().terms();
  const auto found = std::ranges::find(terms, layer, &AdapterTerm::layer);
  const auto term = static_cast<std::size_t>(found - terms.begin());
  const AdapterNumbers& numbers = filled.slots().NumbersOf(term, 0);
  auto* values = reinterpret_cast<float*>(weight.address);
  for (std::int64_t row = 0; row < found->rows; ++row) {
    for (std::int64_t column = 0; column < found->columns; ++column) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < numbers.rank; ++j) {
        sum += filled.B(term, 0, 0, row, j) * filled.A(term, 0, 0, j, column);
      }
      values[found->lookup ? column * found->rows + row : row * found->columns + column] +=
          static_cast<float>(static_cast<double>(numbers.scale) * sum);
    }
  }
}

// With a tied head an adapter of the embedding moves the inputs alone, one of the head the logits alone: as in a model
// whose two ends are apart, and one of them is merged.
TEST(AdaptedDecoder, OfTiedEndsEachHasItsOwnAdapter) {
  for (const std::string layer : {"model.embed_tokens", "lm_head"}) {
    AdaptedModel tied({.tied = true});
    tied.filled.Fill(0,
                     {.rank = 5, .scale = 1.3F, .has = [&](const AdapterTerm& term) { return term.layer == layer; }});
    TinyModel apart({}, {});
    for (const CapturedBuffer& buffer : tied.model.buffers()) {
      const auto size = static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape));
      std::memcpy(apart.buffer(buffer.name).address, buffer.address, size);
      if (buffer.name != "model.embed_tokens.weight") continue;
      std::memcpy(apart.buffer("lm_head.weight").address, buffer.address, size);
    }
    MergeInto(apart.buffer(layer + ".weight"), tied.filled, layer);
    Decoder merged(apart.tree(), {}, apart.buffers(), {tied.collective}, TinyRope);
    const PromptTokens tokens = PromptOf(8, 3);
    const SequenceStep step{0, tokens, true};
    const std::vector<float> expected = merged.Forward({&step, 1}).values, got = tied.Run(0, tokens, 0);
    EXPECT_NE(got, tied.Run(1, tokens, -1));
    float largest = 0.0F;
    for (const float logit : expected) largest = std::max(largest, std::fabs(logit));
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5F * largest) << i;
  }
}

TEST(AdaptedDecoder, RefusesASlotThatIsNotThereBeforeAnythingChanges) {
  AdaptedModel rank({});
  const PromptTokens tokens = {1, 2};
  for (const std::int32_t slot : {9, -2}) {
    const std::vector<SequenceStep> steps = {{7, tokens, false, 0}, {8, tokens, false, slot}};
    EXPECT_EQ(ErrorOf([&] { rank.decoder.Forward(steps); }, ErrorCode::kInvalidArgument),
              "sequence 8: there is no adapter slot " + std::to_string(slot) + ", this engine has 9");
  }
  EXPECT_EQ(rank.decoder.Length(7), 0U);
  Decoder without(rank.model.tree(), {}, rank.model.buffers(), {rank.collective}, TinyRope);
  const SequenceStep step{7, tokens, false, 0};
  EXPECT_EQ(ErrorOf([&] { without.Forward({&step, 1}); }, ErrorCode::kInvalidArgument),
            "sequence 7: there is no adapter slot 0, this engine has 0");
}

}  // namespace
}  // namespace layercast::testing
