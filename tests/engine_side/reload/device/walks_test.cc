// Walks, and what kernels and the host do by them, against what they mean, element by element.
#include "src/tensor/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine_side/reload/device/move_elements.cuh"
#include "engine_side/reload/layout/strided.h"
#include "src/base/bytes/float_bits.h"
#include "src/device/kernels/find_element.cuh"
#include "src/tensor/cast.h"
#include "src/tensor/conversions.h"
#include "src/tensor/strided_copy.h"
#include "tests/support/test_weights.h"

namespace layercast {
namespace {

// Slow, by what a box and an order say.
std::vector<std::uint16_t> CopiedByHand(const std::vector<std::uint16_t>& source, const Shape& shape, const Box& box,
                                        ElementOrder order) {
  std::vector<std::uint16_t> copied(static_cast<std::size_t>(NumElements(shape)));
  const std::size_t rank = box.rank;
  Shape from(box.extent.begin(), box.extent.begin() + box.rank);
  if (order.transposed) std::swap(from[rank - 2], from[rank - 1]);
  for (std::size_t i = 0; i < source.size(); ++i) {
    Shape at(rank);
    for (auto [d, left] = std::pair(rank, static_cast<std::int64_t>(i)); d-- > 0; left /= from[d])
      at[d] = left % from[d];
    if (order.transposed) std::swap(at[rank - 2], at[rank - 1]);
    if (order.interleaved) at[1] = at[1] % 2 * (box.extent[1] / 2) + at[1] / 2;
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < rank; ++d) offset = offset * shape[d] + box.begin[d] + at[d];
    copied[static_cast<std::size_t>(offset)] = source[i];
  }
  return copied;
}

// Element by element; every tensor's elements are their own numbers.
std::vector<std::uint16_t> CopiedByWalk(const std::vector<std::uint16_t>& source, const Shape& shape, const Box& box,
                                        ElementOrder order) {
  std::vector<std::uint16_t> copied(static_cast<std::size_t>(NumElements(shape)));
  const Walk walk = Walk::Into(shape, box, order);
  const cuda::ScatterElement<std::uint16_t> element{source.data(), copied.data(), walk, 0};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(source.size()); ++i) element(i);
  return copied;
}

std::vector<std::uint16_t> CopiedByBox(const std::vector<std::uint16_t>& source, const Shape& shape, const Box& box,
                                       ElementOrder order) {
  std::vector<std::uint16_t> copied(static_cast<std::size_t>(NumElements(shape)));
  const TensorSpec spec{"to", DType::kBF16, shape};
  Shape from(box.extent.begin(), box.extent.begin() + box.rank);
  if (order.transposed) std::swap(from[from.size() - 2], from.back());
  CopyBox({DType::kBF16, from, reinterpret_cast<const std::byte*>(source.data()), {}}, Box::Whole(from), spec, box,
          reinterpret_cast<std::byte*>(copied.data()), order);
  return copied;
}

Box BoxOf(std::vector<std::int64_t> begin, std::vector<std::int64_t> extent) {
  Box box;
  box.rank = static_cast<std::uint8_t>(begin.size());
  std::ranges::copy(begin, box.begin.begin());
  std::ranges::copy(extent, box.extent.begin());
  return box;
}

TEST(Walks, GoWhereTheHostCopies) {
  const std::vector<std::pair<Shape, Box>> cases = {
      {{7}, BoxOf({2}, {4})},
      {{6, 8}, BoxOf({0, 0}, {6, 8})},
      {{6, 8}, BoxOf({2, 2}, {3, 4})},
      {{3, 6, 8}, BoxOf({1, 2, 0}, {2, 4, 8})},
      {{3, 6, 8}, BoxOf({1, 0, 2}, {1, 6, 6})},
      {{2, 4, 6, 4}, BoxOf({0, 1, 2, 1}, {2, 2, 3, 2})},
      {{2, 80, 70}, BoxOf({0, 4, 1}, {2, 74, 66})},  // several tiles, and parts of some
      {{4, 1, 6, 8}, BoxOf({0, 0, 2, 2}, {4, 1, 1, 4})},
  };
  for (const auto& [shape, box] : cases) {
    std::vector<std::uint16_t> source(static_cast<std::size_t>(box.num_elements()));
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint16_t>(i + 1);
    for (const ElementOrder order :
         {ElementOrder{}, ElementOrder{true, false}, ElementOrder{false, true}, ElementOrder{true, true}}) {
      if (!order.is_same() && (box.rank < 2 || box.rank > 3)) continue;
      SCOPED_TRACE(ToString(shape) + (order.transposed ? ", transposed" : "") +
                   (order.interleaved ? ", interleaved" : ""));
      const std::vector<std::uint16_t> expected = CopiedByHand(source, shape, box, order);
      EXPECT_EQ(CopiedByWalk(source, shape, box, order), expected);
      EXPECT_EQ(CopiedByBox(source, shape, box, order), expected);
    }
  }
}

TEST(Walks, KnowRunsThatLieOneBehindTheOther) {
  const Walk rows = Walk::Into({6, 8}, BoxOf({2, 0}, {3, 8}), {});
  EXPECT_TRUE(rows.IsOneRun(0, 24));
  EXPECT_EQ(rows.At(0), 16);
  const Walk part = Walk::Into({6, 8}, BoxOf({2, 2}, {3, 4}), {});
  EXPECT_TRUE(part.IsOneRun(4, 4));
  EXPECT_FALSE(part.IsOneRun(3, 2));
  EXPECT_EQ(part.At(4), 26);
}

TEST(Walks, KnowRowsThatACopyOfTwoDimensionsTakes) {
  const Walk part = Walk::Into({6, 8}, BoxOf({2, 2}, {3, 4}), {});
  EXPECT_EQ(part.RowsOf(0, 12), (Walk::Rows{18, 3, 4, 8}));
  EXPECT_EQ(part.RowsOf(4, 8), (Walk::Rows{26, 2, 4, 8}));
  EXPECT_EQ(part.RowsOf(5, 3), (Walk::Rows{27, 1, 3, 3}));  // one run
  EXPECT_EQ(part.RowsOf(0, 0), Walk::Rows{});
  EXPECT_EQ(part.RowsOf(2, 8), std::nullopt);
  EXPECT_EQ(part.RowsOf(0, 6), std::nullopt);
  EXPECT_EQ(Walk::Into({6, 8}, BoxOf({2, 2}, {3, 4}), {.transposed = true}).RowsOf(0, 12), std::nullopt);
  const Walk stack = Walk::Into({2, 6, 8}, BoxOf({0, 2, 2}, {2, 3, 4}), {});
  EXPECT_EQ(stack.RowsOf(0, 24), std::nullopt);
  EXPECT_EQ(stack.RowsOf(12, 12), (Walk::Rows{66, 3, 4, 8}));
  EXPECT_EQ(stack.RowsOf(8, 8), std::nullopt);
}

// Beyond 32 bits: nothing is there, but where it would be is known.
TEST(Walks, GoFartherThanThirtyTwoBitsCount) {
  constexpr std::int64_t kMany = (std::int64_t{1} << 32) + 6;
  const Walk many_rows = Walk::Into({kMany, 5}, BoxOf({0, 1}, {kMany, 3}), {});
  EXPECT_EQ(many_rows.At(3 * (kMany - 1) + 2), 5 * (kMany - 1) + 3);
  const Walk long_rows = Walk::Into({3, kMany + 4}, BoxOf({0, 4}, {3, kMany}), {});
  EXPECT_EQ(long_rows.At(7), 11);
  EXPECT_EQ(long_rows.At(2 * kMany + 1), 2 * (kMany + 4) + 5);
}

TEST(Walks, GoOverCapturedBuffersInRowMajorOrder) {
  std::vector<std::byte> memory(4096);
  for (const std::vector<std::int64_t>& strides :
       {std::vector<std::int64_t>{}, {35, 7, 1}, {1, 5, 30}, {50, 9, 1}, {100, 2, 11}}) {
    const CapturedBuffer buffer{"b", memory.data(), DType::kBF16, {3, 5, 6}, strides, {}};
    std::vector<std::int64_t> by_hand;
    for (std::int64_t i = 0; i < 3 * 5 * 6; ++i) {
      by_hand.push_back(strides.empty() ? i : i / 30 * strides[0] + i / 6 % 5 * strides[1] + i % 6 * strides[2]);
    }
    std::vector<std::int64_t> by_walk;
    const Walk walk = WalkOver(buffer).value();
    for (std::int64_t i = 0; i < walk.num_elements(); ++i) by_walk.push_back(walk.At(i));
    std::vector<std::int64_t> by_run;
    ForEachRun(buffer, [&](const std::byte* address, std::size_t /*offset*/, std::size_t bytes) {
      for (std::size_t i = 0; i < bytes; i += 2)
        by_run.push_back((address - memory.data()) / 2 + static_cast<std::int64_t>(i / 2));
    });
    EXPECT_EQ(by_walk, by_hand) << ToString(strides);
    EXPECT_EQ(by_run, by_hand) << ToString(strides);
  }
}

// From any element on, and as many as one likes.
TEST(Walks, GoThroughTheRunsOfAnyPart) {
  for (const Walk& walk :
       {Walk::Into({3, 6, 8}, BoxOf({1, 2, 2}, {2, 3, 4}), {}), Walk::Into({9}, BoxOf({2}, {5}), {}),
        Walk::Into({4, 6}, BoxOf({0, 0}, {4, 6}), {true, true}), Walk::Into({4}, BoxOf({2}, {1}), {})}) {
    for (std::int64_t first = 0; first < walk.num_elements(); ++first) {
      for (std::int64_t count = 0; first + count <= walk.num_elements(); ++count) {
        std::vector<std::int64_t> by_run;
        walk.ForEachRun(first, count, [&](std::int64_t offset, std::int64_t of_run) {
          for (std::int64_t i = 0; i < of_run; ++i) by_run.push_back(offset + i);
        });
        std::vector<std::int64_t> by_element;
        for (std::int64_t i = first; i < first + count; ++i) by_element.push_back(walk.At(i));
        ASSERT_EQ(by_run, by_element) << first << ", " << count;
      }
    }
  }
}

template <class From, class To>
void ExpectCasts(DType from, DType to, const std::vector<typename From::Bits>& values) {
  std::vector<typename To::Bits> by_kernel(values.size());
  std::vector<typename To::Bits> by_host(values.size());
  Walk walk;
  walk.rank = 1;
  walk.extent[0] = static_cast<std::int64_t>(values.size());
  walk.stride[0] = 1;
  CudaFaultWord fault = kNoCudaFault;
  const cuda::ScatterCastElement<From, To> element{values.data(), by_kernel.data(), walk, 0, &fault};
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) element(i);
  Cast(from, reinterpret_cast<const std::byte*>(values.data()), to, reinterpret_cast<std::byte*>(by_host.data()),
       values.size());
  const auto wrong = std::ranges::find_if_not(by_host, conversions::IsFinite<To>);
  ASSERT_EQ(fault == kNoCudaFault, wrong == by_host.end());
  if (wrong != by_host.end()) {
    const CudaCastFault first = DecodeCudaCastFault(fault);
    const double value = cuda::ValueOf<From>(values[static_cast<std::size_t>(first.index)]);
    EXPECT_EQ(first.index, wrong - by_host.begin());
    EXPECT_EQ(std::isnan(first.value), std::isnan(value));
    EXPECT_EQ(std::isinf(first.value), std::isinf(value));
    if (std::isfinite(value)) {
      EXPECT_NEAR(first.value, value, std::abs(value) * 1e-6);
    }
  }
  EXPECT_EQ(std::memcmp(by_kernel.data(), by_host.data(), by_host.size() * sizeof(by_host[0])), 0)
      << Name(from) << " to " << Name(to);
}

template <class From>
void ExpectCastsToAll(DType from, const std::vector<typename From::Bits>& values) {
  if (from != DType::kF16) ExpectCasts<From, conversions::F16>(from, DType::kF16, values);
  if (from != DType::kBF16) ExpectCasts<From, conversions::BF16>(from, DType::kBF16, values);
  if (from != DType::kF32) ExpectCasts<From, conversions::F32>(from, DType::kF32, values);
  if (from != DType::kF64) ExpectCasts<From, conversions::F64>(from, DType::kF64, values);
}

TEST(MoveElements, CastAsTheHostDoes) {
  std::vector<std::uint16_t> halves(1 << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  ExpectCastsToAll<conversions::F16>(DType::kF16, halves);
  ExpectCastsToAll<conversions::BF16>(DType::kBF16, halves);
  std::vector<float> floats;
  std::vector<double> doubles;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 4099) {
    floats.push_back(FloatOfBits(static_cast<std::uint32_t>(bits)));
    if (floats.back() == floats.back()) doubles.push_back(static_cast<double>(floats.back()) * 1.00000003);
  }
  ExpectCastsToAll<conversions::F32>(DType::kF32, floats);
  ExpectCastsToAll<conversions::F64>(DType::kF64, doubles);
}

TEST(MoveElements, FindTheFirstElementThatIsNoNumber) {
  const std::vector<std::uint8_t> e4m3 = {0x00, 0x7E, 0xFE, 0xFF, 0x7F, 0x80};
  CudaFaultWord fault = kNoCudaFault;
  const cuda::FindElement<std::uint8_t> element{e4m3.data(), 0x7F, 0x7F, &fault};
  for (const std::int64_t i : {5, 4, 2, 1, 0}) element(i);
  EXPECT_EQ(DecodeCudaFault(fault).index, 4);
  element(3);
  EXPECT_EQ(DecodeCudaFault(fault).index, 3);
}

}  // namespace
}  // namespace layercast
