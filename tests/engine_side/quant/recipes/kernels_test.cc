// The kernels of all recipes against the slow reference, byte for byte.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>

#include "engine_side/quant/recipes/recipe_table.h"
#include "tests/engine_side/quant/recipes/hard_weights.h"
#include "tests/engine_side/quant/recipes/quantized.h"
#include "tests/engine_side/quant/recipes/recipe_cases.h"

namespace layercast {
namespace {

constexpr DType kSources[] = {DType::kBF16, DType::kF16, DType::kF32};

// On each instruction set that this machine has.
void ExpectLikeReference(const RecipeCase& c, const MatrixView& weight, const AmaxInput& amax) {
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

TEST(Kernels, EqualsTheReferenceOnEveryKindOfWeight) {
  for (const std::string& kind : WeightKinds()) {
    SCOPED_TRACE(kind);
    for (const DType dtype : kSources) {
      for (const RecipeCase& c : kQuantizingCases)
        ExpectLikeReference(c, MakeWeight(kind, dtype, 17, c.Cols(521)).view(), {});
    }
  }
}

TEST(Kernels, EqualsTheReferenceForOddSizesAndStrides) {
  for (const std::int64_t rows : {1, 127, 130}) {
    for (const std::int64_t cols : {1, 63, 127, 130, 200}) {
      for (const std::int64_t gap : {0, 130}) {
        for (const RecipeCase& c : kQuantizingCases) {
          ExpectLikeReference(c, MakeWeight("mixed", DType::kBF16, rows, c.Cols(cols), gap).view(), {});
        }
      }
    }
  }
}

// Such tiles go the way of the others, by the table. Nothing but 0 comes of zeros of either sign, and of what is too
// small for its block's scale.
TEST(Kernels, BlocksOfNvfp4WhoseScaleIs0LieBesideOthersInATile) {
  for (const std::int64_t cols : {16, 144, 2048, 2320}) {
    Weight weight = MakeWeight("random", DType::kBF16, 6, cols);
    constexpr std::uint16_t kSmall[] = {0x0000, 0x8000, 0x9f80};  // 0, -0, -2^-64
    for (std::int64_t block = 0; block < 6 * cols / 16; block += 3) {
      const std::uint16_t small = kSmall[block / 3 % 3];
      for (std::int64_t i = block * 16; i < (block + 1) * 16; ++i) {
        weight.SetBits(i / cols, i % cols, i % 2 == 0 ? small : std::uint16_t{0x8000});
      }
    }
    ExpectLikeReference(kNvfp4Case, weight.view(), {});
  }
}

TEST(Kernels, TilesOfSeveralWidthsJoinUp) {
  for (const std::int64_t cols : {1024, 1152, 2100, 4096, 4300}) {
    const Weight weight = MakeWeight("mixed", DType::kBF16, 131, cols);
    ExpectLikeReference(kBlockCase, weight.view(), {});
  }
  for (const DType dtype : {DType::kF16, DType::kF32}) {
    const Weight weight = MakeWeight("mixed", dtype, 131, 1290);
    ExpectLikeReference(kPowerCase, weight.view(), {});
  }
}

TEST(Kernels, AGivenAmaxThatIsLargerThanTheWeightsOwnMakesTheScale) {
  WorkerPool pool(1);
  for (const DType dtype : kSources) {
    const Weight weight = MakeWeight("mixed", dtype, 40, 190, 6);
    std::vector<float> rows(40);
    ScanRows(weight.view(), pool, rows);
    for (std::size_t r = 0; r < rows.size(); ++r) rows[r] *= 1.0F + static_cast<float>(r % 3);
    for (const RecipeCase& c : {kTensorCase, kChannelCase, kInt8Case}) {
      ExpectLikeReference(c, weight.view(), {.tensor = 3e5F, .rows = rows});
    }
    ExpectLikeReference(kNvfp4Case, weight.Part(0, 40, 0, 176), {.tensor = 3e5F, .rows = {}});
  }
}

// Every finite bf16 value once, under several scales: a column of 256 rows, then each row its own scale.
TEST(Kernels, EqualsTheReferenceOnEveryFiniteBf16Value) {
  const auto every = [](std::int64_t r, std::int64_t c) {
    const auto bits = static_cast<std::uint32_t>(r * 256 + c);
    return (bits & 0x7f80) == 0x7f80 ? 0U : bits;
  };
  const Weight weight = MakeWeight(DType::kBF16, 256, 256, 0, every);
  for (const RecipeCase& c : kQuantizingCases) ExpectLikeReference(c, weight.view(), {});
  // Each amax mantissa at which per-tensor divides by another scale.
  const auto within = [&](std::int64_t r, std::int64_t c) {
    const std::uint32_t bits = every(r, c);
    return (bits & 0x7fff) < 0x4300 ? bits : 0U;  // below 128
  };
  const Weight small = MakeWeight(DType::kBF16, 256, 256, 0, within);
  for (std::uint32_t mantissa = 0; mantissa < 128; mantissa += 9) {
    const auto amax = static_cast<float>(DecodeElement(DType::kBF16, 0x4300 + mantissa));
    const std::vector<float> rows(256, amax);
    for (const RecipeCase& c : {kTensorCase, kChannelCase, kInt8Case, kNvfp4Case}) {
      ExpectLikeReference(c, small.view(), {.tensor = amax, .rows = rows});
    }
  }
}

// Those of the 15 exponents below each mantissa of a block's amax.
TEST(Kernels, EqualsTheReferenceOnEveryBf16ValueBelowABlocksAmax) {
  const Weight weight = MakeWeight(DType::kBF16, 128, 2048, 0, [](std::int64_t r, std::int64_t c) {
    const auto amax = static_cast<std::uint32_t>(0x4000 + r);
    const auto below = static_cast<std::uint32_t>(c % 16 + c / 16 * 15);
    return (amax - (c % 16 == 0 ? 0U : below)) | (c % 3 == 0 ? 0x8000U : 0U);
  });
  for (const RecipeCase& c : kQuantizingCases) ExpectLikeReference(c, weight.view(), {});
}

TEST(Kernels, TheBytesDoNotDependOnTheNumberOfThreadsAndRepeat) {
  const Weight weight = MakeWeight("mixed", DType::kBF16, 1500, 1504);
  WorkerPool one(1);
  WorkerPool two(2);
  for (const RecipeCase& c : kQuantizingCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    const Quantized first = QuantizeWhole(*recipe, weight.view(), {}, one);
    EXPECT_EQ(first, QuantizeWhole(*recipe, weight.view(), {}, two)) << c.name;
    EXPECT_EQ(first, QuantizeWhole(*recipe, weight.view(), {}, two)) << c.name;
  }
}

TEST(Kernels, PieceByPieceGivesTheBytesOfTheWhole) {
  const std::int64_t rows = 700;
  const Weight weight = MakeWeight("mixed", DType::kBF16, rows, 224, 32);
  WorkerPool pool(2);
  const AmaxInput amax{.tensor = Scan(weight.view(), pool).amax, .rows = {}};
  for (const RecipeCase& c : kQuantizingCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    const Quantized whole = QuantizeWhole(*recipe, weight.view(), amax, pool);
    Quantized pieces(*recipe, DType::kBF16, rows, 224);
    const std::int64_t step = recipe->row_granularity() * (recipe->row_granularity() == 1 ? 101 : 2);
    for (std::int64_t first = (rows - 1) / step * step; first >= 0; first -= step) {  // any order
      const std::int64_t count = std::min(step, rows - first);
      recipe->Quantize(weight.Part(first, count, 0, 224), first, amax, pieces.views(), pool);
    }
    EXPECT_EQ(pieces, whole) << c.name;
  }
}

// Rows and columns of an unsharded result. A tensor with as many rows as the weight goes along with the rows, and with
// the columns as far as it has any; a single scale stays.
Quantized Slice(const Recipe& recipe, const Quantized& whole, std::int64_t row, std::int64_t rows, std::int64_t col,
                std::int64_t cols) {
  Quantized part(recipe, DType::kBF16, rows, cols);
  for (std::size_t t = 0; t < part.tensors.size(); ++t) {
    const Shape& from = whole.specs[t].shape;
    const Shape& to = part.specs[t].shape;
    if (from.size() == 1) {
      part.tensors[t] = whole.tensors[t];
      continue;
    }
    const std::int64_t size = BitsPerElement(whole.specs[t].dtype) / 8;
    const std::int64_t first_col = col * to[1] / cols * (from[1] == to[1] ? 0 : 1);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::memcpy(part.tensors[t].data() + r * to[1] * size,
                  whole.tensors[t].data() + ((row + r) * from[1] + first_col) * size,
                  static_cast<std::size_t>(to[1] * size));
    }
  }
  return part;
}

TEST(Kernels, ARanksShardQuantizedIsTheShardOfTheQuantizedWeight) {
  const std::int64_t rows = 384;
  const std::int64_t cols = 384;
  const Weight weight = MakeWeight("mixed", DType::kBF16, rows, cols);
  WorkerPool pool(2);
  std::vector<float> row_amax(static_cast<std::size_t>(rows));
  ScanRows(weight.view(), pool, row_amax);
  const float tensor_amax = Scan(weight.view(), pool).amax;
  for (const RecipeCase& c : {kTensorCase, kChannelCase, kMxfp8Case, kNvfp4Case, kInt8Case}) {
    SCOPED_TRACE(c.name);
    const auto recipe = MakeRecipe(c.name);
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

TEST(Kernels, AZeroTensorHasZeroValuesAndScales) {
  WorkerPool pool(1);
  for (const RecipeCase& c : {kTensorCase, kNvfp4Case}) {
    for (const char* kind : {"zero", "minus_zero", "tiny"}) {
      const Weight weight = MakeWeight(kind, DType::kBF16, 3, 112);
      for (const std::vector<std::byte>& tensor : QuantizeWhole(*MakeRecipe(c.name), weight.view(), {}, pool).tensors) {
        EXPECT_EQ(tensor, std::vector<std::byte>(tensor.size(), std::byte{0})) << c.name << ' ' << kind;
      }
    }
  }
}

// Scales of 8-bit integers have no floor: of rows down to the smallest number.
TEST(Kernels, EqualsTheReferenceOnRowsOfEverySize) {
  const Weight weight = MakeWeight(DType::kF32, 300, 70, 0, [](std::int64_t r, std::int64_t c) {
    const double size = std::ldexp(1.0, static_cast<int>(r % 280) - 152);
    return BitsOf(DType::kF32, (c % 2 == 0 ? size : -size) * static_cast<double>(c) / 69.0);
  });
  for (const RecipeCase& c : {kChannelCase, kInt8Case}) ExpectLikeReference(c, weight.view(), {});
}

TEST(Kernels, AnEmptyWeightHasNothingToConvert) {
  WorkerPool pool(1);
  for (const RecipeCase& c : kQuantizingCases) {
    const auto recipe = MakeRecipe(c.name, c.options);
    EXPECT_NO_THROW(QuantizeWhole(*recipe, {DType::kBF16, nullptr, 0, 64, 128}, {}, pool)) << c.name;
    EXPECT_NO_THROW(QuantizeWhole(*recipe, {DType::kBF16, nullptr, 4, 0, 0}, {}, pool)) << c.name;
  }
}

}  // namespace
}  // namespace layercast
