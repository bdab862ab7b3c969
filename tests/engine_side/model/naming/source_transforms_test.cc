#include "layercast/model/source_transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/embedding.h"
#include "layercast/model/linear.h"
#include "layercast/model/norm.h"
#include "tests/support/error_of.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Match = NameRule::Match;
using Transform = SourceTransform;

std::vector<SourceView> Read(std::vector<Transform> transforms, const Shape& shape) {
  return SourceTransforms(std::move(transforms)).Apply({"a.w", DType::kBF16, shape});
}

std::string Refusal(std::vector<Transform> transforms, const Shape& shape,
                    ErrorCode code = ErrorCode::kInvalidArgument) {
  return testing::ErrorOf([&] { (void)Read(std::move(transforms), shape); }, code);
}

// The source box of a piece that is all of the view.
Box BoxOf(const SourceView& view) {
  return view.InSource({0, Box::Whole(view.spec.shape), Box::Whole(view.spec.shape), {}}).source;
}

Box Of(std::vector<std::int64_t> begin, std::vector<std::int64_t> extent) {
  Box box = Box::Whole(extent);
  std::ranges::copy(begin, box.begin.begin());
  return box;
}

TEST(SourceTransforms, ReadATensorAsItIsWithoutRules) {
  const SourceTransforms none;
  EXPECT_FALSE(none.Matches("a.w"));
  const std::vector<SourceView> views = none.Apply({"a.w", DType::kBF16, {4, 6}});
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].spec, (TensorSpec{"a.w", DType::kBF16, {4, 6}}));
  EXPECT_EQ(BoxOf(views[0]), Box::Whole({4, 6}));
}

TEST(SourceTransforms, ChangeTheShape) {
  EXPECT_EQ(Read({Transform::Squeeze(Match::kSuffix, "w", 1)}, {4, 1, 6})[0].spec.shape, Shape({4, 6}));
  EXPECT_EQ(Read({Transform::Reshape(Match::kSuffix, "w", {2, -1, 3})}, {4, 6})[0].spec.shape, Shape({2, 4, 3}));
  const SourceView both =
      Read({Transform::Squeeze(Match::kSuffix, "w", 0), Transform::Reshape(Match::kSuffix, "w", {24})}, {1, 4, 6})[0];
  EXPECT_EQ(both.read_as, Shape({24}));
}

TEST(SourceTransforms, TurnATensorTheOtherWayRoundAndBack) {
  const Transform transpose = Transform::Transpose(Match::kSuffix, "w");
  const SourceView once = Read({transpose}, {4, 6})[0];
  EXPECT_EQ(once.spec.shape, Shape({6, 4}));
  const PlacedPiece piece = once.InSource({0, Of({1, 0}, {2, 4}), Box::Whole({2, 4}), {}});
  EXPECT_EQ(piece.source, Of({0, 1}, {4, 2}));
  EXPECT_TRUE(piece.order.transposed);
  const SourceView twice = Read({transpose, transpose}, {4, 6})[0];
  EXPECT_FALSE(twice.InSource({0, Box::Whole({4, 6}), Box::Whole({4, 6}), {}}).order.transposed);
}

TEST(SourceTransforms, SplitATensor) {
  const std::vector<SourceView> parts =
      Read({Transform::Split(Match::kSuffix, "w", 0, {{"q.w", 3}, {"k.w", 1}})}, {4, 6});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].spec, (TensorSpec{"a.q.w", DType::kBF16, {3, 6}}));
  EXPECT_EQ(parts[1].spec, (TensorSpec{"a.k.w", DType::kBF16, {1, 6}}));
  EXPECT_EQ(BoxOf(parts[1]), Of({3, 0}, {1, 6}));
}

TEST(SourceTransforms, TakePartsInTurns) {
  const std::vector<SourceView> parts =
      Read({Transform::Deinterleave(Match::kSuffix, "w", 0, {"gate.w", "up.w"})}, {4, 6});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].spec, (TensorSpec{"a.up.w", DType::kBF16, {2, 6}}));
  EXPECT_EQ(parts[1].read_as, Shape({2, 2, 6}));
  EXPECT_EQ(BoxOf(parts[1]), Of({0, 1, 0}, {2, 1, 6}));
  const PlacedPiece last_row = parts[1].InSource({0, Of({1, 0}, {1, 6}), Box::Whole({1, 6}), {}});
  EXPECT_EQ(last_row.source, Of({1, 1, 0}, {1, 1, 6}));
}

TEST(SourceTransforms, TakePartsInTurnsElementByElement) {
  const std::vector<SourceView> parts =
      Read({Transform::Deinterleave(Match::kSuffix, "w", 1, {"gate.w", "up.w"})}, {4, 6});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].spec, (TensorSpec{"a.up.w", DType::kBF16, {4, 3}}));
  EXPECT_EQ(parts[1].read_as, Shape({4, 3, 2}));
  EXPECT_EQ(BoxOf(parts[1]), Of({0, 0, 1}, {4, 3, 1}));
}

// Of a stack, each matrix by itself.
TEST(SourceTransforms, LeaveOutAnAxisOfWhatIsSplitAndTransposed) {
  const std::vector<SourceView> parts =
      Read({Transform::Split(Match::kSuffix, "w", 0, {{"0.w", 1}, {"1.w", 1}}),
            Transform::Transpose(Match::kSuffix, "w"), Transform::Squeeze(Match::kSuffix, "w", 0)},
           {2, 4, 6});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].spec, (TensorSpec{"a.1.w", DType::kBF16, {6, 4}}));
  const PlacedPiece piece = parts[1].InSource({0, Of({1, 0}, {2, 4}), Box::Whole({2, 4}), {}});
  EXPECT_EQ(piece.source, Of({1, 0, 1}, {1, 4, 2}));
  EXPECT_TRUE(piece.order.transposed);
}

// [heads, 2, 3, in], of which heads' pairs alternate: each part again in two.
TEST(SourceTransforms, ApplyToAllPartsOneAfterTheOther) {
  const std::vector<SourceView> parts = Read(
      {Transform::Reshape(Match::kSuffix, "w", {4, 6}),
       Transform::Deinterleave(Match::kSuffix, "w", 0, {"even.w", "odd.w"}), Transform::Transpose(Match::kSuffix, "w")},
      {24});
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].spec, (TensorSpec{"a.odd.w", DType::kBF16, {6, 2}}));
  EXPECT_EQ(BoxOf(parts[1]), Of({0, 1, 0}, {2, 1, 6}));
}

TEST(SourceTransforms, NameTensorRuleAndShapeWhereTheyDoNotApply) {
  EXPECT_EQ(Refusal({Transform::Squeeze(Match::kSuffix, "w", 0)}, {4, 6}),
            "'a.w' [4, 6] bf16: suffix w: squeeze axis 0: expected an axis of 1, got 4");
  EXPECT_THAT(Refusal({Transform::Squeeze(Match::kSuffix, "w", 2)}, {4, 6}), HasSubstr("no such axis of [4, 6]"));
  EXPECT_THAT(Refusal({Transform::Reshape(Match::kSuffix, "w", {5, -1})}, {4, 6}),
              HasSubstr("expected a shape of 24 elements, got [5, -1]"));
  EXPECT_THAT(Refusal({Transform::Transpose(Match::kSuffix, "w")}, {4}), HasSubstr("two axes or more, got [4]"));
  EXPECT_THAT(Refusal({Transform::Split(Match::kSuffix, "w", 1, {{"q.w", 3}, {"k.w", 1}})}, {4, 6}),
              AllOf(HasSubstr("split axis 1 into q.w (3), k.w (1)"), HasSubstr("expected parts of 6 together, got 4")));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(Refusal({Transform::Split(Match::kSuffix, "w", 1, {{"q.w", kMost}, {"k.w", kMost}, {"v.w", 8}})}, {4, 6}),
              AllOf(HasSubstr("'a.w' [4, 6] bf16: suffix w: split axis 1 into"),
                    HasSubstr("expected parts of 6 together, got more than 2^63")));
  for (const Shape& shape : {Shape{kMost, kMost, 24}, Shape{kMost, -1, kMost}, Shape{25}, Shape{1, 12}}) {
    EXPECT_THAT(Refusal({Transform::Reshape(Match::kSuffix, "w", shape)}, {4, 6}),
                AllOf(HasSubstr("'a.w' [4, 6] bf16: suffix w: reshape to "),
                      HasSubstr("expected a shape of 24 elements, got [")));
  }
  EXPECT_THAT(Refusal({Transform::Deinterleave(Match::kSuffix, "w", 0, {"g.w", "u.w"})}, {5, 6}),
              HasSubstr("a multiple of 2, got 5"));
}

// Megatron's rows of attention: by group of heads, its queries, its key, its value.
TEST(SourceTransforms, ChangeTheShapeOfWhatIsSplit) {
  const std::vector<SourceView> parts =
      Read({Transform::Reshape(Match::kSuffix, "w", {2, 30, 6}),
            Transform::Split(Match::kSuffix, "w", 1, {{"q.w", 20}, {"k.w", 5}, {"v.w", 5}}),
            Transform::Reshape(Match::kSuffix, "w", {-1, 6})},
           {60, 6});
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].spec, (TensorSpec{"a.q.w", DType::kBF16, {40, 6}}));
  EXPECT_EQ(parts[1].spec.shape, Shape({10, 6}));
  EXPECT_EQ(parts[2].read_as, Shape({2, 30, 6}));
  EXPECT_EQ(BoxOf(parts[2]), Of({0, 25, 0}, {2, 5, 6}));
  const auto rows = [&](std::int64_t first, std::int64_t count) {
    return parts[0].InSource({0, Of({first, 0}, {count, 6}), Box::Whole({count, 6}), {}}).source;
  };
  EXPECT_EQ(rows(20, 20), Of({1, 0, 0}, {1, 20, 6}));
  EXPECT_EQ(rows(25, 10), Of({1, 5, 0}, {1, 10, 6}));
  EXPECT_EQ(testing::ErrorOf([&] { rows(10, 20); }, ErrorCode::kUnsupported),
            "'a.q.w' [40, 6] bf16: elements 10 to 30 of axis 0 are no box of [2, 30, 6], which it is read as");
}

TEST(SourceTransforms, TakeTurnsWithinAPart) {
  const std::vector<SourceView> parts = Read({Transform::Split(Match::kSuffix, "w", 0, {{"a.w", 4}, {"b.w", 2}}),
                                              Transform::Deinterleave(Match::kSuffix, "w", 0, {"g.w", "u.w"})},
                                             {6, 5});
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[3].spec, (TensorSpec{"a.b.u.w", DType::kBF16, {1, 5}}));
  EXPECT_EQ(parts[3].read_as, Shape({3, 2, 5}));
  EXPECT_EQ(BoxOf(parts[1]), Of({0, 1, 0}, {2, 1, 5}));
  EXPECT_EQ(BoxOf(parts[3]), Of({2, 1, 0}, {1, 1, 5}));
}

// [in, heads * head_dim] as [heads * head_dim, in], of which the heads are an axis in between, and are not in the end.
TEST(SourceTransforms, ChangeTheShapeOfWhatIsTransposed) {
  const SourceView view =
      Read({Transform::Transpose(Match::kSuffix, "w"), Transform::Reshape(Match::kSuffix, "w", {2, 3, 4}),
            Transform::Reshape(Match::kSuffix, "w", {6, 4})},
           {4, 6})[0];
  EXPECT_EQ(view.read_as, Shape({4, 6}));
  EXPECT_TRUE(view.transposed);
}

TEST(SourceTransforms, RefuseWhatNoCopyOfBoxesCanFollow) {
  const auto kUnsupported = ErrorCode::kUnsupported;
  EXPECT_EQ(Refusal({Transform::Transpose(Match::kSuffix, "w"), Transform::Reshape(Match::kSuffix, "w", {24})}, {4, 6},
                    kUnsupported),
            "'a.w' [4, 6] bf16: suffix w: reshape to [24]: expected axes in the order in which they are read, or the "
            "last two the other way round, got [24] of axes 1, 0 of [4, 6]");
  EXPECT_THAT(Refusal({Transform::Transpose(Match::kSuffix, "w"), Transform::Reshape(Match::kSuffix, "w", {4, 6})},
                      {4, 6}, kUnsupported),
              HasSubstr("got [24] to be read as [4, 6], and 6 of a run of 4"));
  EXPECT_THAT(Refusal({Transform::Split(Match::kSuffix, "w", 0, {{"a.w", 6}, {"b.w", 8}}),
                       Transform::Reshape(Match::kSuffix, "w", {2, -1})},
                      {14}, kUnsupported),
              HasSubstr("multiples of 3, got elements 0 to 6 of 14"));
}

TEST(SourceTransforms, CheckTheirRulesWhenTheyAreMade) {
  const auto refusal = [](const Transform& transform) {
    return testing::ErrorOf([&] { (void)SourceTransforms({transform}); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(refusal(Transform::Transpose(Match::kSuffix, "")), HasSubstr("there is nothing to match"));
  EXPECT_THAT(refusal(Transform::Reshape(Match::kSuffix, "w", {-1, -1})), HasSubstr("or -1 once"));
  EXPECT_THAT(refusal(Transform::Reshape(Match::kSuffix, "w", {0, 4})), HasSubstr("at least 1"));
  EXPECT_THAT(refusal(Transform::Split(Match::kSuffix, "w", 0, {})), HasSubstr("expected parts"));
  EXPECT_THAT(refusal(Transform::Split(Match::kSuffix, "w", 0, {{"a.w", 0}})), HasSubstr("parts of at least 1"));
}

TEST(SourceTransforms, SayWhichApply) {
  const SourceTransforms transforms(
      {Transform::Transpose(Match::kPrefix, "a"), Transform::Squeeze(Match::kSuffix, "b", 1)});
  EXPECT_THAT(transforms.Describe("a.w"), ElementsAre("prefix a: transpose"));
  EXPECT_THAT(transforms.Describe("c"), IsEmpty());
}

class TwoLayers final : public testing::Tree {
 public:
  TwoLayers() : Tree("TwoLayers") {
    const LayerContext context;
    Add("first", std::make_unique<ReplicatedLinear>(context, 6, 2, false));
    Add("second", std::make_unique<ReplicatedLinear>(context, 6, 2, false));
    Add("head", std::make_unique<TiedLMHead>("first"));
  }
};

TEST(SourceTransforms, BringEachPartOfATensorToItsOwnLayer) {
  TwoLayers model;
  const auto split = [&](const char* other) {
    model.SetTransforms(
        SourceTransforms({Transform::Split(Match::kSuffix, "both", 0, {{"first.weight", 2}, {other, 2}})}));
    return model.ResolveSource({"both", DType::kF32, {4, 6}});
  };
  const std::vector<SourceResolution> parts = split("second.weight");
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].to.owner_path, "first");
  EXPECT_EQ(parts[1].to.owner_path, "second");
  EXPECT_EQ(parts[1].to.pieces.at(0).source, Of({2, 0}, {2, 6}));
  EXPECT_EQ(testing::ErrorOf([&] { split("head.weight"); }, ErrorCode::kUnsupported),
            "'head.weight', a part of 'both', is tied to 'first.weight': expected a tensor of its own");
}

// Of more dimensions than anything that is placed.
TEST(SourceTransforms, LeaveTensorsThatNobodyTakesAsTheyAre) {
  TwoLayers model;
  model.SetMapper(WeightsMapper({NameRule::Drop(Match::kPrefix, "visual", "not served")}));
  model.SetTransforms(SourceTransforms({Transform::Transpose(Match::kPrefix, "first")}));
  const std::vector<SourceResolution> parts = model.ResolveSource({"visual.patch", DType::kF32, {1, 1, 2, 4, 4}});
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].to.skip_rule, "not served");
}

}  // namespace
}  // namespace layercast
