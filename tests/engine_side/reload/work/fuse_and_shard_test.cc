#include "engine_side/reload/work/fuse_and_shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "src/tensor/cast.h"

namespace layercast {
namespace {

struct Case {
  TensorSpec source;
  TensorSpec parameter;
  Box from;
  Box to;
};

std::vector<std::byte> Random(const TensorSpec& spec, std::mt19937& random) {
  std::vector<float> values(static_cast<std::size_t>(spec.num_elements()));
  for (float& value : values) value = static_cast<float>(static_cast<std::int32_t>(random())) * 0x1p-28F;
  std::vector<std::byte> bytes(static_cast<std::size_t>(spec.num_bytes()));
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  if (spec.dtype == DType::kF32) {
    std::memcpy(bytes.data(), from, bytes.size());
  } else {
    Cast(DType::kF32, from, spec.dtype, bytes.data(), values.size());
  }
  return bytes;
}

std::size_t Size(DType dtype) { return static_cast<std::size_t>(BitsPerElement(dtype)) / 8; }

// The element of the tensor that the box's element number `index` (row-major) is.
std::size_t Flat(const Shape& shape, const Box& box, std::int64_t index) {
  std::array<std::int64_t, Box::kMaxRank> at{};
  for (std::size_t d = box.rank; d-- > 0; index /= box.extent[d]) at[d] = box.begin[d] + index % box.extent[d];
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < box.rank; ++d) flat = flat * shape[d] + at[d];
  return static_cast<std::size_t>(flat);
}

// One element after the other.
void FuseSlowly(const Case& c, const std::vector<std::byte>& source, std::vector<std::byte>& memory) {
  for (std::int64_t i = 0; i < c.from.num_elements(); ++i) {
    const std::byte* from = source.data() + Flat(c.source.shape, c.from, i) * Size(c.source.dtype);
    std::byte* to = memory.data() + Flat(c.parameter.shape, c.to, i) * Size(c.parameter.dtype);
    if (c.source.dtype == c.parameter.dtype) {
      std::memcpy(to, from, Size(c.source.dtype));
    } else {
      Cast(c.source.dtype, from, c.parameter.dtype, to, 1);
    }
  }
}

// The packed bytes of the source box.
std::vector<std::byte> Packed(const Case& c, const std::vector<std::byte>& source) {
  const std::size_t size = Size(c.source.dtype);
  std::vector<std::byte> packed;
  for (std::int64_t i = 0; i < c.from.num_elements(); ++i) {
    const auto* from = source.data() + Flat(c.source.shape, c.from, i) * size;
    packed.insert(packed.end(), from, from + size);
  }
  return packed;
}

std::vector<Case> Cases(DType from, DType to) {
  const TensorSpec q{"q", from, {8, 6}};
  return {
      {q, {"qkv", to, {20, 6}}, Box::Slice(q.shape, 0, 4, 4), Box::Slice({20, 6}, 0, 8, 4)},  // rows of a fused weight
      {q, {"o", to, {8, 3}}, Box::Slice(q.shape, 1, 3, 3), Box::Whole({8, 3})},               // columns
      {q, {"w", to, {9, 8}}, Box{2, {1, 2}, {5, 3}}, Box{2, {3, 1}, {5, 3}}},                 // columns on both sides
      {{"b", from, {12}}, {"b", to, {30}}, Box::Slice({12}, 0, 6, 6), Box::Slice({30}, 0, 20, 6)},
      {{"e", from, {3, 4, 5}}, {"e", to, {2, 4, 5}}, Box::Slice({3, 4, 5}, 0, 1, 2), Box::Whole({2, 4, 5})},
  };
}

class FuseAndShardTest : public ::testing::TestWithParam<std::pair<DType, DType>> {};

TEST_P(FuseAndShardTest, AnySplitIntoPackedPiecesEqualsElementByElement) {
  std::mt19937 random(3);
  const auto [from, to] = GetParam();
  for (const Case& c : Cases(from, to)) {
    const std::vector<std::byte> source = Random(c.source, random);
    std::vector<std::byte> expected(static_cast<std::size_t>(c.parameter.num_bytes()), std::byte{0xEE});
    FuseSlowly(c, source, expected);
    const std::vector<std::byte> packed = Packed(c, source);
    for (std::size_t step = Size(from); step <= packed.size(); step += Size(from)) {
      std::vector<std::byte> memory(expected.size(), std::byte{0xEE});
      for (std::size_t begin = 0; begin < packed.size(); begin += step) {
        const std::size_t end = std::min(begin + step, packed.size());
        FuseAndShard({0, 0, c.from, c.to, {}}, {0, begin, end}, from,
                     {packed.data() + begin, end - begin, 1, end - begin}, c.parameter, memory.data());
      }
      ASSERT_EQ(memory, expected) << "pieces of " << step;
    }
  }
}

TEST_P(FuseAndShardTest, StridedRowsEqualElementByElement) {
  std::mt19937 random(4);
  const auto [from, to] = GetParam();
  const std::size_t size = Size(from);
  const Case c = Cases(from, to)[2];  // rows 1 to 5, columns 2 to 4 of [8, 6]
  const std::vector<std::byte> source = Random(c.source, random);
  std::vector<std::byte> expected(static_cast<std::size_t>(c.parameter.num_bytes()), std::byte{0xEE});
  FuseSlowly(c, source, expected);
  for (std::size_t first = 1; first < 5; ++first) {  // rows 0 to first, then the rest
    std::vector<std::byte> memory(expected.size(), std::byte{0xEE});
    for (const auto& [begin, end] : {std::pair(std::size_t{0}, first), std::pair(first, std::size_t{5})}) {
      FuseAndShard({0, 0, c.from, c.to, {}}, {0, begin * 3 * size, end * 3 * size}, from,
                   {source.data() + ((begin + 1) * 6 + 2) * size, 3 * size, end - begin, 6 * size}, c.parameter,
                   memory.data());
    }
    EXPECT_EQ(memory, expected);
  }
}

// Matrices that come the other way round, or with elements in turns: as many rows and columns as fill tiles and parts
// of them. Each is the case of a source whose box is [matrices, rows, cols], and one index of a last axis if it has
// one.
struct Reordered {
  Case c;
  ElementOrder order;
};

std::vector<Reordered> ReorderedCases(DType from, DType to) {
  const ElementOrder transposed{.transposed = true};
  const ElementOrder both{.transposed = true, .interleaved = true};
  const TensorSpec stack{"s", from, {3, 75, 140}};
  const TensorSpec turns{"t", from, {1, 70, 133, 2}};
  const Box of_stack{3, {1, 5, 4}, {2, 70, 132}};
  const Box odd{4, {0, 0, 0, 1}, {1, 70, 133, 1}};
  return {{{stack, {"w", to, {4, 150, 80}}, of_stack, Box{3, {2, 7, 9}, {2, 132, 70}}}, transposed},
          {{stack, {"w", to, {2, 132, 70}}, of_stack, Box::Whole({2, 132, 70})}, both},
          {{stack, {"w", to, {2, 70, 132}}, of_stack, Box::Whole({2, 70, 132})}, {.interleaved = true}},
          {{turns, {"w", to, {1, 140, 71}}, odd, Box{3, {0, 3, 1}, {1, 133, 70}}}, transposed},
          {{turns, {"w", to, {1, 70, 140}}, odd, Box{3, {0, 0, 2}, {1, 70, 133}}}, {}}};
}

// Element by element, where each of the source's comes to lie.
void ReorderSlowly(const Reordered& reordered, const std::vector<std::byte>& source, std::vector<std::byte>& memory) {
  const Case& c = reordered.c;
  const std::int64_t rows = c.from.extent[1];
  const std::int64_t cols = c.from.extent[2];
  for (std::int64_t i = 0; i < c.from.num_elements(); ++i) {
    std::array<std::int64_t, 3> at = {i / cols / rows, i / cols % rows, i % cols};
    if (reordered.order.transposed) std::swap(at[1], at[2]);
    if (reordered.order.interleaved) at[1] = at[1] % 2 * (c.to.extent[1] / 2) + at[1] / 2;
    const std::int64_t place = (at[0] * c.to.extent[1] + at[1]) * c.to.extent[2] + at[2];
    const std::byte* from = source.data() + Flat(c.source.shape, c.from, i) * Size(c.source.dtype);
    std::byte* to = memory.data() + Flat(c.parameter.shape, c.to, place) * Size(c.parameter.dtype);
    if (c.source.dtype == c.parameter.dtype) {
      std::memcpy(to, from, Size(c.source.dtype));
    } else {
      Cast(c.source.dtype, from, c.parameter.dtype, to, 1);
    }
  }
}

TEST_P(FuseAndShardTest, ElementsInAnotherOrderEqualElementByElement) {
  std::mt19937 random(5);
  const auto [from, to] = GetParam();
  for (const Reordered& reordered : ReorderedCases(from, to)) {
    const Case& c = reordered.c;
    const std::vector<std::byte> source = Random(c.source, random);
    std::vector<std::byte> expected(static_cast<std::size_t>(c.parameter.num_bytes()), std::byte{0xEE});
    ReorderSlowly(reordered, source, expected);
    const std::vector<std::byte> packed = Packed(c, source);
    const Placement placement{0, 0, c.from, c.to, {}, reordered.order};
    for (const std::size_t elements : {1U, 100U, 133U, 999U, 9240U, 100'000U}) {
      std::vector<std::byte> memory(expected.size(), std::byte{0xEE});
      const std::size_t step = elements * Size(from);
      for (std::size_t begin = 0; begin < packed.size(); begin += step) {
        const std::size_t end = std::min(begin + step, packed.size());
        FuseAndShard(placement, {0, begin, end}, from, AsView(std::span(packed).subspan(begin, end - begin)),
                     c.parameter, memory.data());
      }
      ASSERT_EQ(memory, expected) << "pieces of " << elements;
    }
  }
}

// As they lie in the source: rows that are apart, and rows of one element each.
TEST_P(FuseAndShardTest, StridedRowsInAnotherOrderEqualElementByElement) {
  std::mt19937 random(6);
  const auto [from, to] = GetParam();
  for (const Reordered& reordered : ReorderedCases(from, to)) {
    const Case& c = reordered.c;
    const std::vector<std::byte> source = Random(c.source, random);
    std::vector<std::byte> expected(static_cast<std::size_t>(c.parameter.num_bytes()), std::byte{0xEE});
    ReorderSlowly(reordered, source, expected);
    std::vector<std::byte> memory(expected.size(), std::byte{0xEE});
    const std::size_t last = c.from.rank - 1U;
    const std::size_t row = static_cast<std::size_t>(c.from.extent[last]) * Size(from);
    const std::size_t stride = static_cast<std::size_t>(c.source.shape[last]) * Size(from);
    const auto of_matrix = static_cast<std::size_t>(c.from.num_elements() / c.from.extent[0] / c.from.extent[last]);
    const Placement placement{0, 0, c.from, c.to, {}, reordered.order};
    for (std::size_t m = 0; m < static_cast<std::size_t>(c.from.extent[0]); ++m) {
      const std::size_t element =
          Flat(c.source.shape, c.from, static_cast<std::int64_t>(m * of_matrix * row / Size(from)));
      for (std::size_t first = 0; first < of_matrix; first += 50) {
        const std::size_t rows = std::min<std::size_t>(50, of_matrix - first);
        const std::size_t begin = (m * of_matrix + first) * row;
        FuseAndShard(placement, {0, begin, begin + rows * row}, from,
                     {source.data() + element * Size(from) + first * stride, row, rows, stride}, c.parameter,
                     memory.data());
      }
    }
    ASSERT_EQ(memory, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, FuseAndShardTest,
                         ::testing::Values(std::pair(DType::kBF16, DType::kBF16), std::pair(DType::kF32, DType::kF32),
                                           std::pair(DType::kF32, DType::kBF16), std::pair(DType::kBF16, DType::kF32),
                                           std::pair(DType::kF16, DType::kBF16), std::pair(DType::kF64, DType::kF16),
                                           std::pair(DType::kF64, DType::kF64), std::pair(DType::kF32, DType::kF64)));

TEST(FuseAndShard, ElementsThatShareBytesAreTakenPieceByPieceAsTheyAre) {
  const std::vector<std::byte> codes = {std::byte{0x21}, std::byte{0x43}, std::byte{0x65}, std::byte{0x87}};
  std::vector<std::byte> memory(4, std::byte{0xEE});
  const TensorSpec parameter{"w", DType::kF4, {2, 4}};
  for (std::uint64_t begin = 0; begin < 4; begin += 2) {
    FuseAndShard({0, 0, Box::Whole({2, 4}), Box::Whole({2, 4}), {}}, {0, begin, begin + 2}, DType::kF4,
                 AsView(std::span(codes).subspan(begin, 2)), parameter, memory.data());
  }
  EXPECT_EQ(memory, codes);
}

TEST(FuseAndShard, AnEmptyPieceWritesNothing) {
  std::vector<std::byte> memory(8, std::byte{0xEE});
  const TensorSpec parameter{"w", DType::kBF16, {4}};
  FuseAndShard({0, 0, Box::Whole({4}), Box::Whole({4}), {}}, {0, 2, 2}, DType::kBF16, {nullptr, 0, 0, 0}, parameter,
               memory.data());
  EXPECT_EQ(memory, std::vector<std::byte>(8, std::byte{0xEE}));
}

}  // namespace
}  // namespace layercast
