#include "engine_side/engine/cpu/cpu_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "engine_side/engine/ranks/shared_memory_collective.h"
#include "engine_side/engine/sampler.h"
#include "layercast/error.h"
#include "tests/engine_side/engine/cpu/tiny_model.h"

namespace layercast {
namespace {

using Tokens = std::vector<std::int32_t>;

Tokens Prompt(std::size_t count, std::int32_t salt) {
  Tokens tokens(count);
  for (std::size_t i = 0; i < count; ++i) tokens[i] = static_cast<std::int32_t>((i * 37 + i * i * 5) % 101);
  for (auto& token : tokens) token = (token + salt * 17) % 101;
  return tokens;
}

const std::vector<TinyOptions> kKinds = {
    {},
    {.dtype = DType::kBF16, .qk_norm = false, .tied = true},
    {.dtype = DType::kBF16, .scale = TinyScale::kTensor, .bias = false},
    {.dtype = DType::kBF16, .scale = TinyScale::kRow, .window = 4},
    {.dtype = DType::kF32, .scale = TinyScale::kBlock, .qk_norm = false},
    {.dtype = DType::kF32, .experts = true},
    {.dtype = DType::kBF16, .bias = false, .experts = true},
};

// A model on one rank.
struct OneRank {
  explicit OneRank(const TinyOptions& options)
      : model(options, {}), decoder(model.tree(), {}, model.buffers(), {collective}, TinyRope) {}

  std::vector<float> Run(std::uint64_t sequence, const Tokens& tokens, bool all = false) {
    const SequenceStep step{sequence, tokens, all};
    return decoder.Forward({&step, 1}).values;
  }

  SingleRank collective;
  TinyModel model;
  Decoder decoder;
};

TEST(Decoder, ASequenceGetsTheSameBitsAloneAndInABatch) {
  for (const TinyOptions& options : kKinds) {
    OneRank rank(options);
    std::vector<Tokens> prompts;
    for (std::int32_t i = 0; i < 7; ++i) prompts.push_back(Prompt(3 + static_cast<std::size_t>(i) * 2, i));
    std::vector<SequenceStep> steps;
    for (std::size_t i = 0; i < prompts.size(); ++i) steps.push_back({100 + i, prompts[i]});
    const Logits together = rank.decoder.Forward(steps);
    ASSERT_EQ(together.rows(), 7U);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<float> alone = rank.Run(i, prompts[i]);
      ASSERT_EQ(std::memcmp(alone.data(), together.row(i).data(), alone.size() * sizeof(float)), 0) << i;
    }
    // One more token for each: now in another company.
    const Tokens next = {5};
    steps.clear();
    for (std::size_t i = 0; i < prompts.size(); i += 3) steps.push_back({100 + i, next});
    const Logits later = rank.decoder.Forward(steps);
    for (std::size_t i = 0; i < later.rows(); ++i) {
      const std::vector<float> alone = rank.Run(3 * i, next);
      ASSERT_EQ(std::memcmp(alone.data(), later.row(i).data(), alone.size() * sizeof(float)), 0) << i;
    }
  }
}

// Tokens of each prompt, all prompts side by side; each with its own seed.
std::vector<Tokens> Generate(Decoder& decoder, const std::vector<Tokens>& prompts, std::uint64_t first_seed) {
  std::vector<Tokens> next = prompts;
  std::vector<Tokens> generated(prompts.size());
  for (std::uint64_t index = 0; index < 12; ++index) {
    std::vector<SequenceStep> steps;
    for (std::size_t i = 0; i < prompts.size(); ++i) steps.push_back({i, next[i]});
    const Logits logits = decoder.Forward(steps);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const SamplingParams params{.temperature = 1.0, .seed = first_seed + i};
      next[i] = {Sample(logits.row(i), params, index).token};
      generated[i].push_back(next[i][0]);
    }
  }
  decoder.DropAll();
  return generated;
}

TEST(Decoder, ASequenceGetsTheSameSampledTokensAloneAndInABatch) {
  OneRank rank(kKinds[2]);
  std::vector<Tokens> prompts;
  for (std::int32_t i = 0; i < 7; ++i) prompts.push_back(Prompt(2 + static_cast<std::size_t>(i), i));
  const std::vector<Tokens> together = Generate(rank.decoder, prompts, 50);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(Generate(rank.decoder, {prompts[i]}, 50 + i)[0], together[i]) << i;
  }
  EXPECT_NE(Generate(rank.decoder, {prompts[0]}, 99)[0], together[0]);
}

TEST(Decoder, TheCacheGivesTheBitsOfAFullRecomputation) {
  for (const TinyOptions& options : kKinds) {
    OneRank rank(options);
    const Tokens tokens = Prompt(23, 3);
    const std::vector<float> whole = rank.Run(0, tokens, true);
    std::vector<float> pieces;
    std::size_t begin = 0;
    for (const std::size_t count : {1UL, 5UL, 1UL, 1UL, 12UL, 3UL}) {
      const std::vector<float> rows = rank.Run(1,
                                               Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                                      tokens.begin() + static_cast<std::ptrdiff_t>(begin + count)),
                                               true);
      pieces.insert(pieces.end(), rows.begin(), rows.end());
      begin += count;
    }
    ASSERT_EQ(begin, tokens.size());
    ASSERT_EQ(pieces, whole);
  }
}

TEST(Decoder, APromptLongerThanOnePassIsTheSameAsItsPieces) {
  OneRank rank({});
  const Tokens tokens = Prompt(1500, 1);
  const std::vector<float> whole = rank.Run(0, tokens);
  rank.Run(1, Tokens(tokens.begin(), tokens.begin() + 700));
  EXPECT_EQ(rank.Run(1, Tokens(tokens.begin() + 700, tokens.end())), whole);
}

TEST(Decoder, AWindowHidesWhatIsFurtherBack) {
  OneRank seen({.window = 0});
  OneRank hidden({.window = 3});
  Tokens tokens = Prompt(12, 2);
  EXPECT_NE(seen.Run(0, tokens), hidden.Run(0, tokens));
  EXPECT_EQ(seen.Run(1, {1, 2, 3}), hidden.Run(1, {1, 2, 3}));  // all of it is inside the window
}

TEST(Decoder, EveryCapturedBufferIsReadThroughItsAddress) {
  const Tokens tokens = Prompt(9, 4);
  for (const TinyOptions& options : kKinds) {
    OneRank rank(options);
    const std::vector<float> before = rank.Run(0, tokens, true);
    for (const CapturedBuffer& buffer : rank.model.buffers()) {
      // Behind the decoder's back, at the address that it recorded: the first element gets another exponent.
      const std::size_t high = static_cast<std::size_t>(BitsPerElement(buffer.dtype)) / 8 - 1;
      // The embedding's row 0 is no token of the prompt's: take a row that is.
      const std::size_t row = buffer.name == "model.embed_tokens.weight"
                                  ? static_cast<std::size_t>(tokens[0]) * TinySizes::kHidden * (high + 1)
                                  : 0;
      std::byte& byte = buffer.address[row + high];
      byte ^= std::byte{0x04};
      EXPECT_NE(rank.Run(1, tokens, true), before) << buffer.name;
      rank.decoder.Drop(1);
      byte ^= std::byte{0x04};
    }
    EXPECT_EQ(rank.Run(2, tokens, true), before);
  }
}

TEST(Decoder, ATableThatMovedUnderItDoesNotShow) {
  OneRank rank({});
  const Tokens tokens = Prompt(5, 1);
  const std::vector<float> before = rank.Run(0, tokens);
  CapturedBuffer& buffer = rank.model.buffer("model.norm.weight");
  std::vector<std::byte> elsewhere(24 * 4);
  buffer.address = elsewhere.data();  // what a re-allocated tensor would do: the graph still reads the old place
  EXPECT_EQ(rank.Run(1, tokens), before);
}

std::vector<std::vector<float>> RunRanks(const TinyOptions& options, int tp_size, const Tokens& tokens) {
  CollectiveSegment segment = CollectiveSegment::Create(tp_size, 512);
  std::vector<std::vector<float>> logits(static_cast<std::size_t>(tp_size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < tp_size; ++rank) {
    threads.emplace_back([&, rank] {
      const ParallelConfig parallel{rank, tp_size};
      SegmentSeat seat(segment, rank);
      SharedMemoryCollective collective(seat, parallel, std::chrono::seconds(60));
      const TinyModel model(options, parallel);
      Decoder decoder(model.tree(), parallel, model.buffers(), {collective}, TinyRope);
      const SequenceStep step{0, tokens, true};
      logits[static_cast<std::size_t>(rank)] = decoder.Forward({&step, 1}).values;
    });
  }
  threads.clear();
  return logits;
}

TEST(Decoder, RanksAgreeBitForBitAndWithOneRankUpToRounding) {
  const TinyOptions options = {.dtype = DType::kF32};
  const Tokens tokens = Prompt(9, 6);
  OneRank one(options);
  const std::vector<float> expected = one.Run(0, tokens, true);
  float largest = 0.0F;
  for (const float logit : expected) largest = std::max(largest, std::fabs(logit));
  for (const int tp_size : {2, 4}) {  // 4: key/value heads are replicated
    const auto logits = RunRanks(options, tp_size, tokens);
    for (const auto& of_rank : logits) EXPECT_EQ(of_rank, logits[0]);
    ASSERT_EQ(logits[0].size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(logits[0][i], expected[i], 1e-5F * largest) << i;
  }
}

TEST(Decoder, RefusesWhatCannotBeBeforeAnythingChanges) {
  OneRank rank({});
  rank.Run(7, {1, 2});
  const Tokens fine = {3};
  const Tokens bad = {4, 101};
  const Tokens many(3000, 1);
  const std::vector<SequenceStep> wrong_token = {{7, fine}, {8, bad}};
  EXPECT_THAT([&] { rank.decoder.Forward(wrong_token); },
              ::testing::ThrowsMessage<Error>("sequence 8: token 101 is outside the vocabulary of 101"));
  const std::vector<SequenceStep> too_long = {{8, fine}, {7, many}};
  EXPECT_THAT([&] { rank.decoder.Forward(too_long); },
              ::testing::ThrowsMessage<Error>("sequence 7 would be 3002 tokens long, the model's limit is 3000"));
  const std::vector<SequenceStep> none = {{9, {}}};
  EXPECT_THROW(rank.decoder.Forward(none), Error);
  EXPECT_EQ(rank.decoder.Length(7), 2U);
  EXPECT_EQ(rank.decoder.Length(8), 0U);
}

TEST(Decoder, NamesTheBufferThatIsMissingWrongStridedOrUnknown) {
  const TinyModel model({}, {});
  const auto refusal = [&](const std::vector<CapturedBuffer>& buffers) -> std::string {
    SingleRank collective;
    try {
      Decoder decoder(model.tree(), {}, buffers, {collective}, TinyRope);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal(model.buffers()), "none");
  std::vector<CapturedBuffer> buffers = model.buffers();
  buffers.erase(std::ranges::find(buffers, "model.layers.1.mlp.down_proj.weight", &CapturedBuffer::name));
  EXPECT_THAT(refusal(buffers),
              ::testing::HasSubstr("no buffer 'model.layers.1.mlp.down_proj.weight', expected [24, 40] f32"));
  buffers = model.buffers();
  buffers.back().shape = {127, 24};
  EXPECT_THAT(refusal(buffers), ::testing::HasSubstr("'lm_head.weight' expected [128, 24] f32, got [127, 24] f32"));
  buffers = model.buffers();
  buffers.back().strides = {48, 1};
  EXPECT_THAT(refusal(buffers), ::testing::HasSubstr("strided"));
  buffers = model.buffers();
  CapturedBuffer unknown;
  unknown.name = "model.layers.0.mlp.router.weight";
  unknown.address = buffers[0].address;
  unknown.shape = {4};
  buffers.push_back(unknown);
  EXPECT_THAT(refusal(buffers), ::testing::HasSubstr("'model.layers.0.mlp.router.weight' [4] f32"));
}

}  // namespace
}  // namespace layercast
