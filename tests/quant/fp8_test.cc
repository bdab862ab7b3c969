// The FP8 recipes against the slow reference, byte for byte.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "engine_side/quant/fp8_scale.h"
#include "tests/quant/quantized.h"
#include "tests/quant/weights.h"

namespace layercast {
namespace {

constexpr DType kSources[] = {DType::kBF16, DType::kF16, DType::kF32};

struct Case {
  const char* name;
  RecipeOptions options;
};
constexpr Case kCases[] = {
    {"fp8_per_tensor", {}}, {"fp8_per_channel", {}}, {"fp8_per_block", {}}, {"fp8_per_block", {true}}};

// On each instruction set that this machine has.
void ExpectLikeReference(const Case& c, const MatrixView& weight, const AmaxInput& amax) {
  WorkerPool pool(1);
  const auto recipe = MakeRecipe(c.name, c.options);
  const Quantized expected = QuantizeWholeSlowly(*recipe, c.options, weight, amax);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    const Quantized got = QuantizeWhole(*recipe, weight, amax, pool);
    hwy::SetSupportedTargetsForTest(0);
    for (std::size_t t = 0; t < got.tensors.size(); ++t) {
      const auto [at, _] = std::mismatch(got.tensors[t].begin(), got.tensors[t].end(), expected.tensors[t].begin());
      ASSERT_TRUE(at == got.tensors[t].end())
          << hwy::TargetName(target) << ' ' << c.name << ' ' << got.specs[t].name << ' ' << Name(weight.dtype) << ' '
          << weight.rows << 'x' << weight.cols << ": byte " << at - got.tensors[t].begin();
    }
  }
}

TEST(Fp8, EqualsTheReferenceOnEveryKindOfWeight) {
  for (const std::string& kind : WeightKinds()) {
    SCOPED_TRACE(kind);
    for (const DType dtype : kSources) {
      const Weight weight = MakeWeight(kind, dtype, 17, 521);
      for (const Case& c : kCases) ExpectLikeReference(c, weight.view(), {});
    }
  }
}

TEST(Fp8, EqualsTheReferenceForOddSizesAndStrides) {
  for (const std::int64_t rows : {1, 127, 130}) {
    for (const std::int64_t cols : {1, 63, 127, 130, 200}) {
      for (const std::int64_t gap : {0, 130}) {
        const Weight weight = MakeWeight("mixed", DType::kBF16, rows, cols, gap);
        for (const Case& c : kCases) ExpectLikeReference(c, weight.view(), {});
      }
    }
  }
}

TEST(Fp8, TilesOfSeveralWidthsJoinUp) {
  for (const std::int64_t cols : {1024, 1152, 2100, 4096, 4300}) {
    const Weight weight = MakeWeight("mixed", DType::kBF16, 131, cols);
    ExpectLikeReference(kCases[2], weight.view(), {});
  }
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    const Weight weight = MakeWeight("mixed", dtype, 131, 1290);
    ExpectLikeReference(kCases[3], weight.view(), {});
  }
}

TEST(Fp8, AGivenAmaxThatIsLargerThanTheWeightsOwnMakesTheScale) {
  WorkerPool pool(1);
  for (const DType dtype : kSources) {
    const Weight weight = MakeWeight("mixed", dtype, 40, 190, 6);
    std::vector<float> rows(40);
    ScanRows(weight.view(), pool, rows);
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r] *= 1.0F + static_cast<float>(r % 3);
    ExpectLikeReference(kCases[0], weight.view(), {.tensor = 3e5F, .rows = {}});
    ExpectLikeReference(kCases[1], weight.view(), {.tensor = -1.0F, .rows = rows});
  }
}

// Every finite bf16 value once, under several scales: a column of 256 rows, then each row its own scale.
TEST(Fp8, EqualsTheReferenceOnEveryFiniteBf16Value) {
  const auto every = [](std::int64_t r, std::int64_t c) {
    const auto bits = static_cast<std::uint32_t>(r * 256 + c);
    return (bits & 0x7f80) == 0x7f80 ? 0U : bits;
  };
  const Weight weight = MakeWeight(DType::kBF16, 256, 256, 0, every);
  for (const Case& c : kCases) ExpectLikeReference(c, weight.view(), {});
  // Each amax mantissa at which per-tensor divides by another scale.
  const auto within = [&](std::int64_t r, std::int64_t c) {
    const std::uint32_t bits = every(r, c);
    return (bits & 0x7fff) < 0x4300 ? bits : 0U;  // below 128
  };
  const Weight small = MakeWeight(DType::kBF16, 256, 256, 0, within);
  for (std::uint32_t mantissa = 0; mantissa < 128; mantissa += 9) {
    const auto amax = static_cast<float>(DecodeElement(DType::kBF16, 0x4300 + mantissa));
    ExpectLikeReference(kCases[0], small.view(), {.tensor = amax, .rows = {}});
    const std::vector<float> rows(256, amax);
    ExpectLikeReference(kCases[1], small.view(), {.tensor = -1.0F, .rows = rows});
  }
}

TEST(Fp8, TheBytesDoNotDependOnTheNumberOfThreadsAndRepeat) {
  const Weight weight = MakeWeight("mixed", DType::kBF16, 1500, 1500);
  WorkerPool one(1);
  WorkerPool two(2);
  for (const Case& c : kCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    const Quantized first = QuantizeWhole(*recipe, weight.view(), {}, one);
    EXPECT_EQ(first, QuantizeWhole(*recipe, weight.view(), {}, two)) << c.name;
    EXPECT_EQ(first, QuantizeWhole(*recipe, weight.view(), {}, two)) << c.name;
  }
}

TEST(Fp8, PieceByPieceGivesTheBytesOfTheWhole) {
  const std::int64_t rows = 700;
  const Weight weight = MakeWeight("mixed", DType::kBF16, rows, 200, 32);
  WorkerPool pool(2);
  const AmaxInput amax{.tensor = Scan(weight.view(), pool).amax, .rows = {}};
  for (const Case& c : kCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    const Quantized whole = QuantizeWhole(*recipe, weight.view(), amax, pool);
    Quantized pieces(*recipe, DType::kBF16, rows, 200);
    const std::int64_t step = recipe->row_granularity() * (recipe->row_granularity() == 1 ? 101 : 2);
    for (std::int64_t first = (rows - 1) / step * step; first >= 0; first -= step) {  // any order
      const std::int64_t count = std::min(step, rows - first);
      recipe->Quantize(weight.Part(first, count, 0, 200), first, amax, pieces.views(), pool);
    }
    EXPECT_EQ(pieces, whole) << c.name;
  }
}

// Rank `rank`'s rows or columns of an unsharded result; per-channel scales go along with rows.
Quantized Slice(const Recipe& recipe, const Quantized& whole, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols) {
  Quantized part(recipe, DType::kBF16, rows, cols);
  const std::int64_t whole_cols = whole.specs[0].shape[1];
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(part.tensors[0].data() + r * cols, whole.tensors[0].data() + (row + r) * whole_cols + col,
                static_cast<std::size_t>(cols));
  }
  const std::size_t offset = recipe.name() == "fp8_per_channel" ? static_cast<std::size_t>(row) * sizeof(float) : 0;
  std::memcpy(part.tensors[1].data(), whole.tensors[1].data() + offset, part.tensors[1].size());
  return part;
}

TEST(Fp8, ARanksShardQuantizedIsTheShardOfTheQuantizedWeight) {
  const std::int64_t rows = 384;
  const std::int64_t cols = 320;
  const Weight weight = MakeWeight("mixed", DType::kBF16, rows, cols);
  WorkerPool pool(2);
  std::vector<float> row_amax(static_cast<std::size_t>(rows));
  ScanRows(weight.view(), pool, row_amax);
  const float tensor_amax = Scan(weight.view(), pool).amax;
  for (const char* name : {"fp8_per_tensor", "fp8_per_channel"}) {
    const auto recipe = MakeRecipe(name);
    const Quantized whole = QuantizeWhole(*recipe, weight.view(), {}, pool);
    for (const std::int64_t ranks : {2, 4}) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t row = rows / ranks * rank;
        const std::int64_t col = cols / ranks * rank;
        const AmaxInput by_rows{.tensor = tensor_amax, .rows = {}};
        EXPECT_EQ(QuantizeWhole(*recipe, weight.Part(row, rows / ranks, 0, cols), by_rows, pool),
                  Slice(*recipe, whole, row, rows / ranks, 0, cols));
        const AmaxInput by_cols{.tensor = tensor_amax, .rows = row_amax};
        EXPECT_EQ(QuantizeWhole(*recipe, weight.Part(0, rows, col, cols / ranks), by_cols, pool),
                  Slice(*recipe, whole, 0, rows, col, cols / ranks));
      }
    }
  }
}

TEST(Fp8, AZeroTensorHasZeroValuesAndScale) {
  WorkerPool pool(1);
  for (const char* kind : {"zero", "minus_zero", "tiny"}) {
    const Weight weight = MakeWeight(kind, DType::kBF16, 3, 100);
    const Quantized got = QuantizeWhole(*MakeRecipe("fp8_per_tensor"), weight.view(), {}, pool);
    EXPECT_EQ(got.tensors[0], std::vector<std::byte>(300, std::byte{0})) << kind;
    EXPECT_EQ(got.tensors[1], std::vector<std::byte>(4, std::byte{0})) << kind;
  }
}

TEST(Fp8, AnEmptyWeightHasNothingToConvert) {
  WorkerPool pool(1);
  for (const Case& c : kCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    EXPECT_NO_THROW(QuantizeWhole(*recipe, {DType::kBF16, nullptr, 0, 64, 128}, {}, pool)) << c.name;
    EXPECT_NO_THROW(QuantizeWhole(*recipe, {DType::kBF16, nullptr, 4, 0, 0}, {}, pool)) << c.name;
  }
}

TEST(Fp8, ScalesHaveTheirFloors) {
  EXPECT_EQ(ChannelScale(0.0F), 1.0F / 229376.0F);
  EXPECT_EQ(ChannelScale(448.0F), 1.0F);
  EXPECT_EQ(BlockScale(0.0F, false), 1e-4F / 448.0F);
  EXPECT_EQ(BlockScale(448.0F, true), 1.0F);
  EXPECT_EQ(BlockScale(449.0F, true), 2.0F);
  EXPECT_EQ(BlockScale(0.0F, true), std::ldexp(1.0F, -22));
  EXPECT_TRUE(IsZeroTensor(0.0F));
  EXPECT_TRUE(IsZeroTensor(1.3e-36F));
  EXPECT_FALSE(IsZeroTensor(1.4e-36F));
}

// Against the definition itself: the nearest of the 127 finite magnitudes, the even code where two are as near.
TEST(Fp8, TheCastRoundsToTheNearestCode) {
  const auto nearest = [](double magnitude) {
    std::uint8_t best = 0;
    for (int code = 1; code < 0x7f; ++code) {
      const auto candidate = static_cast<std::uint8_t>(code);
      const double distance = std::fabs(magnitude - DecodeElement(DType::kF8E4M3, candidate));
      const double least = std::fabs(magnitude - DecodeElement(DType::kF8E4M3, best));
      if (distance < least || (distance == least && code % 2 == 0)) best = candidate;
    }
    return best;
  };
  for (std::uint32_t bits = 0; (bits << 16) < 0x43e80000; ++bits) {  // every bf16 value below 464, and off by one
    for (const std::uint32_t off : {0U, 1U, 0xffffU}) {
      const float value = std::bit_cast<float>((bits << 16) + off);
      if (value > 464.0F) continue;
      ASSERT_EQ(EncodeE4M3(value), nearest(static_cast<double>(value))) << value;
      ASSERT_EQ(EncodeE4M3(-value), nearest(static_cast<double>(value)) | 0x80) << -value;
    }
  }
  EXPECT_EQ(EncodeE4M3(464.0F), 0x7e);
  EXPECT_EQ(EncodeE4M3(464.1F), 0x7f);
  EXPECT_EQ(EncodeE4M3(-std::numeric_limits<float>::infinity()), 0xff);
  EXPECT_EQ(EncodeE4M3(std::numeric_limits<float>::quiet_NaN()), 0x7f);
}

}  // namespace
}  // namespace layercast
