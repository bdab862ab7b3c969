// What a walk yields is held against what was declared for it.
#include "trainer_side/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

constexpr std::array<float, 4> kValues = {1, -2, 3, 4};

NamedTensor Tensor(const std::string& name, Shape shape = {4}) {
  return {name, {DType::kF32, std::move(shape), reinterpret_cast<const std::byte*>(kValues.data()), {}}, nullptr};
}

Snapshot Take(const std::vector<TensorSpec>& declared, const std::vector<NamedTensor>& yielded, bool borrowed = true) {
  WorkerPool pool(1);
  HostMemory memory;
  const Weights weights{.specs = declared,
                        .walk = [&](std::span<const std::string>) { return MakeWeightsIterator(yielded); },
                        .borrowed = borrowed};
  DeviceTensors device(OpenCudaStream, pool);
  return TakeSnapshot({.lineage = "run", .step = 1}, weights, nullptr,
                      {.host = memory, .device = device, .pool = pool});
}

std::string Refusal(const std::vector<TensorSpec>& declared, const std::vector<NamedTensor>& yielded) {
  try {
    Take(declared, yielded);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "none";
}

const std::vector<TensorSpec> kDeclared = {
    {"a", DType::kF32, {4}}, {"b", DType::kF32, {2, 2}}, {"c", DType::kF32, {4}}};

TEST(Snapshot, KeepsTheOrderOfTheWalkWhateverWasDeclared) {
  const std::vector<NamedTensor> tensors = {Tensor("a"), Tensor("b", {2, 2}), Tensor("c")};
  for (const std::vector<std::size_t>& order :
       std::vector<std::vector<std::size_t>>{{0, 1, 2}, {0, 2, 1}, {2, 1, 0}, {1, 0, 2}}) {
    std::vector<NamedTensor> yielded;
    for (const std::size_t i : order) yielded.push_back(tensors[i]);
    const Snapshot snapshot = Take(kDeclared, yielded);
    ASSERT_EQ(snapshot.manifest.size(), 3U);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(snapshot.manifest.entry(i).spec.name, yielded[i].name);
    EXPECT_EQ(snapshot.manifest.entry(0).amax, 4);
  }
}

std::string RefusalOfPart(const std::vector<std::optional<TensorPart>>& declared,
                          const std::optional<TensorPart>& yielded) {
  WorkerPool pool(1);
  HostMemory memory;
  NamedTensor tensor = Tensor("a");
  tensor.part = yielded;
  const Weights weights{.specs = {{"a", DType::kF32, {4}}},
                        .parts = declared,
                        .walk = [&](std::span<const std::string>) { return MakeWeightsIterator(std::vector{tensor}); },
                        .borrowed = true};
  DeviceTensors device(OpenCudaStream, pool);
  try {
    TakeSnapshot({.lineage = "run", .step = 1, .part = {0, 2}}, weights, nullptr,
                 {.host = memory, .device = device, .pool = pool});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "none";
}

TEST(Snapshot, RefusesAnotherPartThanWasDeclared) {
  const TensorPart first{.whole = {8}, .offsets = {0}};
  const TensorPart second{.whole = {8}, .offsets = {4}};
  const TensorPart all{.whole = {4}, .offsets = {0}};
  EXPECT_EQ(RefusalOfPart({second}, second), "none");
  EXPECT_EQ(RefusalOfPart({}, std::nullopt), "none");
  EXPECT_EQ(RefusalOfPart({all}, std::nullopt), "none");
  EXPECT_EQ(RefusalOfPart({std::nullopt}, all), "none");
  EXPECT_EQ(RefusalOfPart({second}, first),
            "'a': the source declared a part at [4] of [8], and yielded a part at [0] of [8]");
  EXPECT_EQ(RefusalOfPart({second}, std::nullopt),
            "'a': the source declared a part at [4] of [8], and yielded all of it");
  EXPECT_EQ(RefusalOfPart({std::nullopt}, first),
            "'a': the source declared all of it, and yielded a part at [0] of [8]");
  EXPECT_EQ(RefusalOfPart({}, first), "none");  // learnt from the walk
  EXPECT_THAT(RefusalOfPart({first, second}, first), HasSubstr("1 specs and 2 parts"));
}

// Several parts of one tensor, each of 4 of 16 elements.
NamedTensor PartFrom(std::int64_t offset) {
  NamedTensor tensor = Tensor("a");
  tensor.part = TensorPart{.whole = {16}, .offsets = {offset}};
  return tensor;
}

std::string RefusalOfParts(const std::vector<std::int64_t>& declared, const std::vector<std::int64_t>& yielded) {
  WorkerPool pool(1);
  HostMemory memory;
  DeviceTensors device(OpenCudaStream, pool);
  std::vector<NamedTensor> tensors;
  for (const std::int64_t offset : yielded) tensors.push_back(PartFrom(offset));
  Weights weights = Weights::Once({}, MakeWeightsIterator(std::move(tensors)));
  weights.borrowed = true;
  for (const std::int64_t offset : declared) {
    weights.specs.push_back({"a", DType::kF32, {4}});
    weights.parts.push_back(PartFrom(offset).part);
  }
  try {
    TakeSnapshot({.lineage = "run", .step = 1, .part = {0, 2}}, weights, nullptr,
                 {.host = memory, .device = device, .pool = pool});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "none";
}

TEST(Snapshot, TakesSeveralPartsOfATensorInAnyOrder) {
  EXPECT_EQ(RefusalOfParts({}, {8, 0}), "none");
  EXPECT_EQ(RefusalOfParts({0, 8, 12}, {0, 8, 12}), "none");
  EXPECT_EQ(RefusalOfParts({0, 8, 12}, {8, 12, 0}), "none");
}

TEST(Snapshot, RefusesPartsOfATensorThatComeTwiceOrMeet) {
  EXPECT_EQ(RefusalOfParts({0, 8}, {0, 0}),
            "'a': the source declared a part at [8] of [16], and yielded a part at [0] of [16]");
  EXPECT_EQ(RefusalOfParts({0, 8, 12}, {8, 8, 0}),
            "'a' [8:12] of [16] was yielded without being declared, or yielded twice");
  EXPECT_EQ(RefusalOfParts({0, 8}, {0}), "the walk ended without 'a', which was declared");
  EXPECT_THAT(RefusalOfParts({}, {8, 8}), HasSubstr("have the same name 'a' and begin at the same [8]"));
  EXPECT_EQ(RefusalOfParts({}, {8, 6}),
            "'a': [6:10] of [16] and [8:12] of [16] are both published: expected every element once");
}

TEST(Snapshot, RefusesWhatIsNotDeclaredOrComesTwice) {
  const auto b = Tensor("b", {2, 2});
  EXPECT_THAT(Refusal(kDeclared, {Tensor("a"), Tensor("x")}),
              HasSubstr("'x' was yielded without being declared, or yielded twice"));
  EXPECT_THAT(Refusal(kDeclared, {Tensor("a"), Tensor("a")}),
              HasSubstr("'a' was yielded without being declared, or yielded twice"));
  EXPECT_THAT(Refusal(kDeclared, {Tensor("c"), Tensor("a"), Tensor("c")}), HasSubstr("'c' was yielded"));
  EXPECT_THAT(Refusal(kDeclared, {Tensor("a"), b, Tensor("c"), Tensor("c")}), HasSubstr("'c' was yielded"));
  EXPECT_THAT(Refusal({}, {Tensor("a"), Tensor("a")}), HasSubstr("have the same name"));
}

TEST(Snapshot, RefusesWhatIsDeclaredOtherwise) {
  EXPECT_THAT(Refusal(kDeclared, {Tensor("a"), Tensor("b", {4})}), HasSubstr("'b': declared"));
  EXPECT_THAT(Refusal(kDeclared, {Tensor("b", {4})}), HasSubstr("'b': declared"));
}

TEST(Snapshot, RefusesAWalkThatEndsEarly) {
  EXPECT_THAT(Refusal(kDeclared, {Tensor("a"), Tensor("b", {2, 2})}),
              HasSubstr("ended without 'c', which was declared"));
  EXPECT_THAT(Refusal(kDeclared, {Tensor("c"), Tensor("b", {2, 2})}),
              HasSubstr("ended without 'a', which was declared"));
  EXPECT_THAT(Refusal(kDeclared, {}), HasSubstr("ended without 'a' and 2 more declared tensors"));
}

TEST(Snapshot, RefusesATensorWithoutBytesWhetherItIsCopiedOrBorrowed) {
  NamedTensor nowhere = Tensor("a");
  nowhere.tensor.data = nullptr;
  for (const bool borrowed : {false, true}) {
    EXPECT_THAT([&] { Take({}, {nowhere}, borrowed); },
                ::testing::ThrowsMessage<Error>(HasSubstr("'a' ([4] f32): expected the address of its bytes")));
  }
}

}  // namespace
}  // namespace layercast
