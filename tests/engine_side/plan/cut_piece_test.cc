// Placed pieces cut at parts' borders: what the cuts copy from the parts is what the piece copies from the whole.
#include "engine_side/plan/cut_piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/tensor/strided_copy.h"
#include "src/tensor/walk.h"
#include "tests/support/error_of.h"
#include "tests/support/test_weights.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;

struct Placed {
  const char* name;
  Shape source, destination;
  PlacedPiece piece;
};

Box MakeBox(const Shape& begin, const Shape& extent) {
  Box box = Box::Whole(extent);
  std::ranges::copy(begin, box.begin.begin());
  return box;
}

PlacedPiece PieceOf(Box source, Box destination, ElementOrder order = {}) {
  return {.parameter = 2, .source = source, .destination = destination, .shard_id = "q", .order = order};
}

std::vector<Placed> Pieces() {
  return {
      {"rows", {7, 5}, {9, 5}, PieceOf(MakeBox({2, 0}, {4, 5}), MakeBox({5, 0}, {4, 5}))},
      {"columns", {7, 5}, {7, 3}, PieceOf(MakeBox({0, 1}, {7, 3}), MakeBox({0, 0}, {7, 3}))},
      {"of a stack", {7, 5}, {3, 7, 5}, PieceOf(MakeBox({0, 0}, {7, 5}), MakeBox({1, 0, 0}, {1, 7, 5}))},
      {"squeezed", {6, 1, 4}, {8, 4}, PieceOf(MakeBox({1, 0, 0}, {5, 1, 4}), MakeBox({2, 0}, {5, 4}))},
      {"transposed", {6, 7}, {7, 6}, PieceOf(MakeBox({1, 2}, {5, 3}), MakeBox({3, 0}, {3, 5}), {true, false})},
      {"transposed, a row", {6, 7}, {7, 6}, PieceOf(MakeBox({1, 2}, {1, 3}), MakeBox({3, 4}, {3, 1}), {true, false})},
      {"transposed in a stack",
       {4, 6, 7},
       {2, 7, 6},
       PieceOf(MakeBox({1, 0, 2}, {2, 6, 3}), MakeBox({0, 3, 0}, {2, 3, 6}), {true, false})},
  };
}

// The bytes of a box of a tensor, by single elements.
std::vector<float> Slice(const std::vector<float>& values, const Shape& shape, const Box& box) {
  std::vector<float> slice;
  for (std::int64_t i = 0; i < NumElements(shape); ++i) {
    bool inside = true;
    std::int64_t rest = i;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      const std::int64_t at = rest % shape[d] - box.begin[d];
      inside = inside && at >= 0 && at < box.extent[d];
    }
    if (inside) slice.push_back(values[static_cast<std::size_t>(i)]);
  }
  return slice;
}

std::vector<float> Copied(const Placed& placed, const std::vector<float>& values, const std::vector<Box>& parts) {
  const TensorSpec spec{"p", DType::kF32, placed.destination};
  std::vector<float> destination(static_cast<std::size_t>(spec.num_elements()), -1);
  for (const Box& part : parts) {
    const auto cut = CutPiece(placed.piece, part);
    if (!cut) continue;
    EXPECT_EQ(cut->shard_id, "q");
    const std::vector<float> here = Slice(values, placed.source, part);
    Box source = cut->source;
    for (std::size_t d = 0; d < source.rank; ++d) source.begin[d] -= part.begin[d];
    const Shape shape(part.extent.begin(), part.extent.begin() + part.rank);
    CopyBox({DType::kF32, shape, reinterpret_cast<const std::byte*>(here.data()), {}}, source, spec, cut->destination,
            reinterpret_cast<std::byte*>(destination.data()), cut->order);
  }
  return destination;
}

TEST(CutPiece, AtAnyBordersFillsWhatThePieceFills) {
  for (const Placed& placed : Pieces()) {
    std::vector<float> values(static_cast<std::size_t>(NumElements(placed.source)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const std::vector<float> whole = Copied(placed, values, {Box::Whole(placed.source)});
    for (std::size_t axis = 0; axis < placed.source.size(); ++axis) {
      for (std::int64_t border = 0; border <= placed.source[axis]; ++border) {
        const std::vector<Box> halves = {Box::Slice(placed.source, axis, 0, border),
                                         Box::Slice(placed.source, axis, border, placed.source[axis] - border)};
        EXPECT_EQ(Copied(placed, values, halves), whole) << placed.name << ", axis " << axis << " at " << border;
      }
    }
    std::vector<Box> elements;  // every element of another publisher
    Walk::Into(placed.source, Box::Whole(placed.source)).ForEachRun([&](std::int64_t offset, std::int64_t count) {
      for (std::int64_t i = offset; i < offset + count; ++i) {
        Box one = Box::Whole(Shape(placed.source.size(), 1));
        std::int64_t rest = i;
        for (std::size_t d = placed.source.size(); d-- > 0; rest /= placed.source[d]) {
          one.begin[d] = rest % placed.source[d];
        }
        elements.push_back(one);
      }
    });
    EXPECT_EQ(Copied(placed, values, elements), whole) << placed.name;
  }
}

TEST(CutPiece, WhatTakesTurnsIsCutAlongOtherAxesAlone) {
  const Shape shape = {4, 6, 8};
  const Placed stack{"experts", shape, {4, 8, 6}, PieceOf(Box::Whole(shape), Box::Whole({4, 8, 6}), {true, true})};
  std::vector<float> values(4 * 6 * 8);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::vector<float> whole = Copied(stack, values, {Box::Whole(shape)});
  for (const std::size_t axis : {0U, 1U}) {
    const std::vector<Box> halves = {Box::Slice(shape, axis, 0, 1), Box::Slice(shape, axis, 1, shape[axis] - 1)};
    EXPECT_EQ(Copied(stack, values, halves), whole) << axis;
  }
  EXPECT_THAT(ErrorOf([&] { CutPiece(stack.piece, Box::Slice(shape, 2, 0, 4)); }, ErrorCode::kUnsupported),
              HasSubstr("cut along axis 2, whose elements take turns"));
}

TEST(CutPiece, OneThatChangesItsShapeComesWholeOrNotAtAll) {
  const PlacedPiece piece = PieceOf(Box::Whole({6, 4}), Box::Whole({2, 3, 4}));
  EXPECT_TRUE(CutPiece(piece, Box::Whole({6, 4})));
  EXPECT_FALSE(CutPiece(piece, Box::Slice({6, 4}, 0, 3, 0)));
  EXPECT_THAT(ErrorOf([&] { CutPiece(piece, Box::Slice({6, 4}, 0, 0, 3)); }, ErrorCode::kUnsupported),
              HasSubstr("changes its shape"));
}

}  // namespace
}  // namespace layercast
