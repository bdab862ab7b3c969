// Linear layers with adapters: against plain loops, and numbers that PEFT gives. Sums of the numbers that are used here
// are exact in fp32, whatever their order, so that all is compared to the bit.
#include "engine_side/engine/cpu/blocks/adapted_linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "engine_side/engine/ranks/shared_memory_collective.h"
#include "tests/support/filled_slots.h"

namespace layercast::testing {
namespace {

using Matrix = std::vector<std::vector<float>>;

AdapterTerm LinearTerm(std::int64_t rows, std::int64_t columns, std::int64_t first_row = 0) {
  return {.layer = "proj",
          .parameter = "weight",
          .shard = {},
          .first_row = first_row,
          .rows = rows,
          .columns = columns,
          .sums = false};
}

// A layer of f32 weights, whose output is rounded to `dtype`, and slots for it.
class Layer {
 public:
  Layer(const Matrix& weight, DType dtype, std::vector<AdapterTerm> terms, AdapterSlotSizes sizes = {.slots = 9})
      : filled_(std::move(terms), sizes) {
    for (const auto& row : weight) values_.insert(values_.end(), row.begin(), row.end());
    linear_.weight = {.values = reinterpret_cast<const std::byte*>(values_.data()),
                      .dtype = DType::kF32,
                      .rows = weight.size(),
                      .cols = weight[0].size()};
    linear_.dtype = dtype;
    linear_.adapter = {.slots = &filled_.slots(), .first = 0, .count = filled_.slots().terms().size()};
  }

  void SetBias(std::vector<float> bias) {
    bias_ = std::move(bias);
    linear_.bias = WeightView{.values = reinterpret_cast<const std::byte*>(bias_.data()),
                              .dtype = DType::kF32,
                              .rows = 1,
                              .cols = bias_.size()};
  }
  void Set(std::size_t slot, std::size_t term, const Matrix& a, const Matrix& b, float scale) {
    filled_.NumbersOf(term, slot) = {.rank = static_cast<std::int32_t>(a.size()), .scale = scale};
    for (std::size_t j = 0; j < a.size(); ++j) {
      for (std::size_t c = 0; c < a[j].size(); ++c) filled_.SetA(term, slot, 0, Signed(j), Signed(c), a[j][c]);
      for (std::size_t i = 0; i < b.size(); ++i) filled_.SetB(term, slot, 0, Signed(i), Signed(j), b[i][j]);
    }
  }

  // Each row of x with its slot.
  Matrix Run(const Matrix& x, const std::vector<std::int32_t>& slots) const {
    Activations in(x.size(), x[0].size()), out;
    std::vector<TokenRow> rows(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      std::ranges::copy(x[i], in.row(i));
      rows[i].adapter = slots[i];
    }
    const SlotGroups groups = GroupBySlot(rows);
    ColumnParallel(in, linear_, groups, out);
    Matrix y;
    for (std::size_t i = 0; i < x.size(); ++i) y.emplace_back(out[i].begin(), out[i].end());
    return y;
  }

  FilledSlots& filled() { return filled_; }
  const LinearOperand& linear() const { return linear_; }

 private:
  static std::int64_t Signed(std::size_t index) { return static_cast<std::int64_t>(index); }

  FilledSlots filled_;
  std::vector<float> values_, bias_;
  LinearOperand linear_;
};

// One output row, one slot.
float Golden(DType dtype, const Matrix& weight, const Matrix& a, const Matrix& b, float scale,
             const std::vector<float>& x, const std::vector<float>& bias = {}) {
  Layer layer(weight, dtype, {LinearTerm(1, static_cast<std::int64_t>(x.size()))},
              {.slots = 2, .max_rank = 3, .dtype = dtype});
  if (!bias.empty()) layer.SetBias(bias);
  layer.Set(1, 0, a, b, scale);
  return layer.Run({x}, {1})[0][0];
}

TEST(AdaptedLinear, TheBaseIsRoundedBeforeTheDeltaIsAdded) {
  EXPECT_EQ(Golden(DType::kBF16, {{256, 1}}, {{1, 0}}, {{1}}, 1.0F, {1, 1}), 256.0F);
}

TEST(AdaptedLinear, TheScaleMultipliesAfterBInFp32) {
  const Matrix a = {{1, 1}, {0, 0}, {0, 0}};
  EXPECT_EQ(Golden(DType::kBF16, {{0, 0}}, a, {{1, 0, 0}}, 1.0F / 3.0F, {382, 0.875F}), 127.5F);
}

TEST(AdaptedLinear, TheSmallVectorIsNotRounded) {
  EXPECT_EQ(Golden(DType::kBF16, {{-1, 0}}, {{1, 1}}, {{1}}, 1.0F, {256, 1}), 1.0F);
}

TEST(AdaptedLinear, TheScaleOfRankStabilizedAdaptersIsAnyNumber) {
  const auto scale = static_cast<float>(3.0 / std::sqrt(2.0));
  EXPECT_EQ(Golden(DType::kBF16, {{1, 0}}, {{1, 0}, {0, 1}}, {{1, 1}}, scale, {2, 1}), 8.375F);
}

TEST(AdaptedLinear, TheBaseHasItsBias) {
  EXPECT_EQ(Golden(DType::kBF16, {{1, 0}}, {{1, 0}}, {{1}}, 2.0F, {2, 1}, {0.5F}), 6.5F);
}

TEST(AdaptedLinear, ASumThatF16DoesNotHoldIsInfinite) {
  EXPECT_EQ(Golden(DType::kF16, {{60000, 0}}, {{1, 0}}, {{10000}}, 1.0F, {1, 1}),
            std::numeric_limits<float>::infinity());
}

// A number of few bits, of which hundreds can be multiplied and summed exactly.
Matrix Random(std::size_t rows, std::size_t columns, std::mt19937& random) {
  Matrix matrix(rows, std::vector<float>(columns));
  for (auto& row : matrix) {
    for (float& value : row) value = 0.25F * static_cast<float>(static_cast<int>(random() % 15) - 7);
  }
  return matrix;
}

float Product(const std::vector<float>& row, const std::vector<float>& x) {
  double sum = 0.0;
  for (std::size_t c = 0; c < x.size(); ++c) sum += static_cast<double>(row[c]) * static_cast<double>(x[c]);
  return static_cast<float>(sum);
}

struct Factors {
  Matrix a, b;
  float scale = 1.0F;
};

// The obvious layer: every term by plain loops.
std::vector<float> Obvious(const Matrix& weight, const std::vector<AdapterTerm>& terms,
                           const std::vector<Factors>& factors, DType dtype, const std::vector<float>& x) {
  std::vector<float> y;
  for (const auto& row : weight) y.push_back(Product(row, x));
  RoundTo(dtype, y);
  for (std::size_t term = 0; term < factors.size(); ++term) {
    std::vector<float> h;
    for (const auto& row : factors[term].a) h.push_back(Product(row, x));
    for (std::size_t i = 0; !h.empty() && i < factors[term].b.size(); ++i) {
      float& to = y[static_cast<std::size_t>(terms[term].first_row) + i];
      to += factors[term].scale * Product(factors[term].b[i], h);
      RoundTo(dtype, {&to, 1});
    }
  }
  return y;
}

// Ranks 0 to 8 of three shards, of which the last does not reach the layer's end, in rows that are no whole vectors.
TEST(AdaptedLinear, IsTheObviousSumToTheBit) {
  std::mt19937 random(3);
  const std::vector<AdapterTerm> terms = {LinearTerm(18, 35), LinearTerm(5, 35, 18), LinearTerm(7, 35, 23)};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const DType factors_dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Matrix weight = Random(32, 35, random);
      Layer layer(weight, dtype, terms, {.slots = 9, .max_rank = 19, .dtype = factors_dtype});
      std::vector<std::vector<Factors>> of_slots(9, std::vector<Factors>(terms.size()));
      for (std::size_t slot = 0; slot < 9; ++slot) {
        for (std::size_t term = 0; term < terms.size(); ++term) {
          const std::size_t rank = (slot * 3 + term * 7) % 19;
          Factors& factors = of_slots[slot][term];
          factors = {Random(rank, 35, random), Random(static_cast<std::size_t>(terms[term].rows), rank, random),
                     0.25F * static_cast<float>(slot + 1)};
          layer.Set(slot, term, factors.a, factors.b, factors.scale);
        }
      }
      const Matrix x = Random(23, 35, random);
      std::vector<std::int32_t> slots;
      for (std::size_t i = 0; i < x.size(); ++i) slots.push_back(static_cast<std::int32_t>(random() % 10) - 1);
      const Matrix y = layer.Run(x, slots);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto factors = slots[i] < 0 ? std::vector<Factors>() : of_slots[static_cast<std::size_t>(slots[i])];
        ASSERT_EQ(y[i], Obvious(weight, terms, factors, dtype, x[i])) << i << " slot " << slots[i];
      }
    }
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Any numbers: the sums are not exact.
TEST(AdaptedLinear, ARowsBitsDependOnItsOwnSlotAlone) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto any = [&](std::size_t rows, std::size_t columns) {
    Matrix matrix(rows, std::vector<float>(columns));
    for (auto& row : matrix) std::ranges::generate(row, [&] { return normal(random); });
    return matrix;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Layer layer(any(40, 90), dtype, {LinearTerm(24, 90), LinearTerm(16, 90, 24)},
                {.slots = 9, .max_rank = 21, .dtype = DType::kBF16});
    for (std::size_t slot = 0; slot < 8; ++slot) {
      layer.filled().Fill(slot, {.seed = slot, .rank = static_cast<std::int32_t>(slot * 3), .scale = 0.7F});
    }
    layer.filled().Fill(8, {.seed = 3, .rank = 9, .scale = 0.7F});  // the same adapter as slot 3
    const Matrix x = any(17, 90);
    const std::vector<float> alone = layer.Run({x[4]}, {3})[0];
    const std::vector<float> base = layer.Run({x[5]}, {-1})[0];
    EXPECT_FALSE(SameBits(alone, layer.Run({x[4]}, {-1})[0]));
    EXPECT_TRUE(SameBits(alone, layer.Run({x[4]}, {8})[0]));  // in another slot
    std::vector<std::int32_t> slots(17, -1);
    slots[4] = 3;
    EXPECT_TRUE(SameBits(alone, layer.Run(x, slots)[4]));  // beside base rows
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<std::int32_t>(i % 8);
    slots[4] = 8;
    slots[5] = -1;
    EXPECT_TRUE(SameBits(alone, layer.Run(x, slots)[4]));  // beside all others
    EXPECT_TRUE(SameBits(base, layer.Run(x, slots)[5]));
    for (std::size_t slot = 0; slot < 8; ++slot) layer.filled().FillWithNaN(slot);
    EXPECT_TRUE(SameBits(alone, layer.Run(x, slots)[4]));
    EXPECT_TRUE(SameBits(base, layer.Run(x, slots)[5]));
  }
}

TEST(AdaptedLinear, WhatAnAdapterDoesNotHaveAddsNothingNotEvenZero) {
  Layer layer({{-1, 0}, {-1, 0}}, DType::kBF16, {LinearTerm(1, 2), LinearTerm(1, 2, 1)},
              {.slots = 2, .max_rank = 2, .dtype = DType::kBF16});
  layer.filled().FillWithNaN(0);  // its rank is 0
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  const Matrix x = {{0x1p-149F, 0}};  // the base is -0, of a negative number that bf16 does not hold
  EXPECT_EQ(bits(layer.Run(x, {-1})[0][0]), bits(-0.0F));
  EXPECT_EQ(bits(layer.Run(x, {0})[0][0]), bits(-0.0F));
  layer.Set(1, 1, {{0, 0}}, {{0}}, 1.0F);
  EXPECT_EQ(bits(layer.Run(x, {1})[0][0]), bits(-0.0F));  // its other term adds zero to the other row
  EXPECT_EQ(bits(layer.Run(x, {1})[0][1]), bits(0.0F));
}

// Columns 0 to 7 and 8 to 15 of A on two ranks, B whole: one small vector for each token.
TEST(AdaptedLinear, RanksThatShareColumnsShareTheSmallVector) {
  constexpr std::size_t kRows = 24, kColumns = 16, kTokens = 5;
  std::mt19937 random(8);
  const Matrix weight = Random(kRows, kColumns, random), x = Random(kTokens, kColumns, random);
  const std::vector<Factors> factors = {{Random(3, kColumns, random), Random(kRows, 3, random), 1.5F},
                                        {Random(2, kColumns, random), Random(kRows, 2, random), 0.5F}};
  const std::vector<std::int32_t> slots = {0, -1, 1, 0, 2};  // 2 holds nothing
  CollectiveSegment segment = CollectiveSegment::Create(2, 64);
  std::vector<Matrix> of_ranks(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const ParallelConfig parallel{.tp_rank = rank, .tp_size = 2};
      SegmentSeat seat(segment, rank);
      SharedMemoryCollective collective(seat, parallel, std::chrono::seconds(60));
      const auto part = [&](const Matrix& whole) {
        Matrix columns;
        for (const auto& row : whole) columns.emplace_back(row.begin() + 8 * rank, row.begin() + 8 * rank + 8);
        return columns;
      };
      Layer layer(part(weight), DType::kBF16, {LinearTerm(kRows, 8)},
                  {.slots = 3, .max_rank = 4, .dtype = DType::kF32});
      for (std::size_t slot = 0; slot < 2; ++slot) {
        layer.Set(slot, 0, part(factors[slot].a), factors[slot].b, factors[slot].scale);
      }
      Activations in(kTokens, 8), out;
      std::vector<TokenRow> rows(kTokens);
      for (std::size_t i = 0; i < kTokens; ++i) {
        std::ranges::copy(part(x)[i], in.row(i));
        rows[i].adapter = slots[i];
      }
      const SlotGroups groups = GroupBySlot(rows);
      RowParallel(in, layer.linear(), groups, collective, out);
      for (std::size_t i = 0; i < kTokens; ++i) {
        of_ranks[static_cast<std::size_t>(rank)].emplace_back(out[i].begin(), out[i].end());
      }
    });
  }
  threads.clear();
  EXPECT_EQ(of_ranks[0], of_ranks[1]);
  for (std::size_t i = 0; i < kTokens; ++i) {
    std::vector<Factors> own;
    if (slots[i] == 0 || slots[i] == 1) own.push_back(factors[static_cast<std::size_t>(slots[i])]);
    EXPECT_EQ(of_ranks[0][i], Obvious(weight, {LinearTerm(kRows, kColumns)}, own, DType::kBF16, x[i])) << i;
  }
}

}  // namespace
}  // namespace layercast::testing
