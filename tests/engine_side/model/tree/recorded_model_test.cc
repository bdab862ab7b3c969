// A tree that was recorded: where it says tensors go, and which recordings it refuses.
#include "layercast/recorded_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "layercast/model/module.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

RecordedParameter RecordedWeight(std::string name, Shape shape, bool quantize = false) {
  RecordedParameter parameter;
  parameter.spec = {std::move(name), DType::kBF16, std::move(shape)};
  parameter.quantize = quantize;
  return parameter;
}

// q and k fill a fused layer; o is cut along its columns, up is transposed; nobody takes "unused".
Recording RecordedLoad() {
  Recording recording;
  recording.sources = {{"q", DType::kBF16, {8, 16}},
                       {"k", DType::kBF16, {4, 16}},
                       {"o", DType::kBF16, {16, 32}},
                       {"up", DType::kBF16, {16, 24}},
                       {"unused", DType::kBF16, {3}}};
  recording.parameters = {RecordedWeight("model.qk.weight", {12, 16}, true),
                          RecordedWeight("model.o.weight", {16, 16}, true),
                          RecordedWeight("model.up.weight", {12, 16}, true)};
  recording.copies = {{0, 0, Box::Whole({8, 16}), Box::Slice({12, 16}, 0, 0, 8)},
                      {1, 0, Box::Whole({4, 16}), Box::Slice({12, 16}, 0, 8, 4)},
                      {2, 1, Box::Slice({16, 32}, 1, 16, 16), Box::Whole({16, 16})},
                      {3, 2, Box::Slice({16, 24}, 1, 12, 12), Box::Whole({12, 16}), true}};
  return recording;
}

TEST(RecordedModel, PlacesTensorsWhereTheLoaderDid) {
  const auto tree = TreeOf(RecordedLoad());
  const Resolution k = tree->Resolve({"k", DType::kF32, {4, 16}});
  EXPECT_EQ(k.owner_path, "model.qk");
  ASSERT_THAT(k.pieces, SizeIs(1));
  EXPECT_EQ(k.pieces[0].destination, Box::Slice({12, 16}, 0, 8, 4));
  EXPECT_EQ(tree->Resolve({"unused", DType::kBF16, {3}}).owner, nullptr);
  EXPECT_TRUE(tree->Resolve({"up", DType::kBF16, {16, 24}}).pieces[0].order.transposed);
}

TEST(RecordedModel, KnowsAlongWhichAxisAWeightIsSharded) {
  const auto tree = TreeOf(RecordedLoad());
  const auto axis = [&](const char* path) { return tree->FindModule(path)->parameters()[0].shard_axis; };
  EXPECT_EQ(axis("model.qk"), ShardAxis::kNone);
  EXPECT_EQ(axis("model.o"), ShardAxis::kCols);
  EXPECT_EQ(axis("model.up"), ShardAxis::kRows);
}

TEST(RecordedModel, TakesTheTensorsThatWereRecordedAlone) {
  const auto tree = TreeOf(RecordedLoad());
  EXPECT_THAT(ErrorOf([&] { tree->Resolve({"v", DType::kBF16, {4, 16}}); }),
              HasSubstr("no tensor named 'v' among the 5"));
  EXPECT_THAT(ErrorOf([&] { tree->Resolve({"k", DType::kBF16, {5, 16}}); }),
              HasSubstr("layer model.qk: 'k' expected [4, 16] bf16, got [5, 16] bf16"));
}

TEST(RecordedModel, RefusesWhatNoLoaderDoes) {
  const auto refusal = [](auto change) {
    Recording recording = RecordedLoad();
    change(recording);
    return ErrorOf([&] { TreeOf(std::move(recording)); });
  };
  EXPECT_THAT(refusal([](Recording& r) { r.sources.push_back(r.sources[0]); }), HasSubstr("got 'q' twice"));
  EXPECT_THAT(refusal([](Recording& r) { r.parameters.push_back(r.parameters[0]); }),
              HasSubstr("already has a part called 'weight'"));
  EXPECT_THAT(refusal([](Recording& r) { r.copies[0].source = 9; }), HasSubstr("expected one of 5 tensors"));
  EXPECT_THAT(refusal([](Recording& r) { r.copies[0].from.begin[0] = 1; }),
              HasSubstr("'q': expected a box of [8, 16]"));
  EXPECT_THAT(refusal([](Recording& r) { r.copies[0].to.extent[0] = 7; }), HasSubstr("boxes of as many elements"));
  EXPECT_THAT(refusal([](Recording& r) {
                r.copies[3].source = 2;
                r.copies[3].from = Box::Slice({16, 32}, 1, 0, 12);
              }),
              HasSubstr("'o' goes into layers model.o and model.up"));
  EXPECT_THAT(refusal([](Recording& r) { r.parameters[0].zeros = {Box::Whole({13, 16})}; }),
              HasSubstr("expected a box of [12, 16]"));
}

}  // namespace
}  // namespace layercast
