// What a receiver refuses: the old bytes are served on, and the next load is taken.
#include "layercast/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::IndexOf;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using ::testing::SizeIs;
using testing::SpecsOf;
using ::testing::StartsWith;
using testing::TensorsOf;
using testing::Weights;

void Rename(std::vector<NamedTensor>& tensors, const std::string& from, const std::string& to) {
  std::ranges::find(tensors, from, &NamedTensor::name)->name = to;
}

// What is wrong with a stream, and how its error reads.
struct Wrong {
  const char* what;
  std::function<void(std::vector<NamedTensor>&)> spoil;
  const char* message;
};

TEST(Receiver, AWrongStreamKeepsTheOldBytesAndTheNextOneIsTaken) {
  const std::vector<std::byte> nan(65U * 128 * 2, std::byte{0xFF});
  const std::vector<Wrong> wrongs = {
      {"a gap", [](auto& tensors) { tensors.erase(tensors.begin() + 5); }, "'model.layers.0.self_attn.k_proj.bias'"},
      {"nothing", [](auto& tensors) { tensors.clear(); }, "'model.embed_tokens.weight'"},
      {"repeated", [](auto& tensors) { tensors.push_back(tensors[3]); }, "q_proj.bias' came twice"},
      {"unexpected", [](auto& tensors) { Rename(tensors, "model.norm.weight", "model.norm.bias"); }, "model.norm.bias"},
      {"undeclared", [](auto& tensors) { Rename(tensors, "model.norm.weight", "model.layers.7.norm.weight"); },
       "layers.7"},
      {"misshapen", [](auto& tensors) { tensors[2].tensor.shape = {128, 256}; },
       "q_proj.weight' expected [256, 128] bf16, got [128, 256] bf16"},
      {"another dtype", [](auto& tensors) { tensors[2].tensor.dtype = DType::kF16; }, "got [256, 128] f16"},
      {"a NaN", [&](auto& tensors) { tensors.back().tensor.data = nan.data(); }, "'lm_head.weight'"},
      {"memory of a device", [](auto& tensors) { tensors[4].tensor.device.kind = Device::Kind::kCuda; }, "host memory"},
      {"no memory", [](auto& tensors) { tensors[4].tensor.data = nullptr; }, "k_proj.weight"},
  };
  ReceiverRig rig;
  const Weights a = rig.Version(1);
  const Weights b = rig.Version(2);
  rig.receiver->ReloadWeights(EagerSource(a));
  const auto served = rig.engine.Served();
  const Version version = *rig.receiver->version();
  for (const Wrong& wrong : wrongs) {
    std::vector<NamedTensor> tensors = TensorsOf(b);
    wrong.spoil(tensors);
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), SpecsOf(b))); }),
                HasSubstr(wrong.message))
        << wrong.what;
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty()) << wrong.what;
    EXPECT_EQ(*rig.receiver->version(), version) << wrong.what;
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U) << wrong.what;
  }
  rig.receiver->ReloadWeights(EagerSource(b));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(b)), IsEmpty());
}

TEST(Receiver, RefusesSpecsThatDoNotFitBeforeAnyByteMoves) {
  ReceiverRig rig;
  const Weights a = rig.Version(1);
  std::vector<TensorSpec> specs = SpecsOf(a);
  specs[2].shape = {256, 64};
  specs.pop_back();
  specs.push_back({"model.extra.weight", DType::kBF16, {4}});
  const auto never = [] { return MakeWeightsIterator([]() -> std::optional<NamedTensor> { throw std::bad_alloc(); }); };
  EXPECT_THAT(
      ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(never(), specs)); }),
      AllOf(HasSubstr("lm_head.weight"), HasSubstr("model.extra"),
            HasSubstr("'model.layers.0.self_attn.q_proj.weight' expected [256, 128] bf16, got [256, 64] bf16")));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(never())); }), HasSubstr("needs the specs"));
}

TEST(Receiver, RefusesACheckpointThatDoesNotFitNamingItsFolder) {
  const auto refusal = [](bool is_checkpoint_format) {
    ReceiverRig rig;
    const TempFolder folder;
    const Weights weights = rig.Version(1);
    std::vector<NamedTensor> tensors = TensorsOf(weights);
    tensors.pop_back();
    const char* const file = is_checkpoint_format ? "model.safetensors" : "model-rank-0-part-0.safetensors";
    WriteSafetensors(folder / file, tensors);
    const std::string error =
        ErrorOf([&] { rig.receiver->ReloadWeights(FromPath(folder.path(), is_checkpoint_format)); });
    EXPECT_THAT(error, StartsWith("checkpoint " + folder.path().string() + ": "));
    return error;
  };
  EXPECT_THAT(refusal(true), HasSubstr("the manifest does not fit:\n  1 missing"));
  EXPECT_THAT(refusal(false), HasSubstr("these weights are not this engine's kernel tensors"));
}

TEST(Receiver, AnIteratorsOwnFailureIsPassedOnAndForgotten) {
  ReceiverRig rig;
  const Weights a = rig.Version(1);
  rig.receiver->ReloadWeights(EagerSource(a));
  auto failing = [&a, at = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
    if (at == 6) throw std::runtime_error("the generator broke");
    return a.at(at++);
  };
  EXPECT_THROW(rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(failing))), std::runtime_error);
  EXPECT_GT(rig.receiver->report().bytes, 0U) << "the report keeps what had happened";
  EXPECT_LT(rig.receiver->report().bytes, rig.receiver->report().bytes_total);
  EXPECT_NO_THROW(rig.receiver->ReloadWeights(EagerSource(a)));
}

TEST(Receiver, ALoadThatFailedIsNotTheOneWhoseSpecsHoldForTheNext) {
  ReceiverRig rig;
  const Weights a = rig.Version(1);
  rig.receiver->ReloadWeights(EagerSource(a));
  std::vector<TensorSpec> of_another_dtype = SpecsOf(a);
  for (TensorSpec& spec : of_another_dtype) spec.dtype = DType::kF32;
  const auto broken = []() -> std::optional<NamedTensor> { throw std::runtime_error("the generator broke"); };
  EXPECT_THROW(rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(broken), of_another_dtype)),
               std::runtime_error);
  EXPECT_NO_THROW(rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(TensorsOf(a)))));
}

TEST(Receiver, ATiedHeadMustHoldTheEmbeddingsBytes) {
  ReceiverRig rig({.tied = true});
  Weights weights = rig.Version(1);
  const std::size_t embed = IndexOf(weights, "model.embed_tokens.weight");
  weights.AddRandom({"lm_head.weight", DType::kBF16, {65, 128}}, 77);
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(weights)); }),
              HasSubstr("'lm_head.weight' is tied to 'model.embed_tokens.weight', but holds other bytes"));
  weights.bytes(weights.size() - 1) = weights.bytes(embed);
  const ReloadReport report = rig.receiver->ReloadWeights(EagerSource(weights));
  ASSERT_THAT(report.skipped, SizeIs(1));
  EXPECT_EQ(report.skipped[0].name, "lm_head.weight");
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
}

TEST(Receiver, KernelFormatIsRefusedWhereItsScalesAreNone) {
  struct Case {
    const char* recipe;
    const char* scale;
    std::vector<std::byte> value;  // of element 1
    const char* said;
  };
  const std::vector<std::byte> minus_one = {std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0xBF}};
  for (const auto& [recipe, scale, value, said] :
       {Case{"fp8_per_channel", ".weight_scale", minus_one, "that are not negative, got -1.0"},
        Case{"fp8_per_block", ".weight_scale_inv", minus_one, "that are not negative, got -1.0"},
        Case{"nvfp4", ".weight_scale", {std::byte{0xB8}}, "that are not negative, got -1.0"},
        Case{"mxfp4", ".weight_scale", {std::byte{0xFF}}, "powers of two, got NaN"}}) {
    SCOPED_TRACE(recipe);
    ReceiverRig rig({.recipe = recipe});
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const std::string name = std::string("model.layers.0.mlp.gate_up_proj") + scale;
    auto bad = served;
    std::ranges::copy(value, bad.at(name).begin() + static_cast<std::ptrdiff_t>(value.size()));
    std::vector<NamedTensor> kernel;
    for (const CapturedBuffer& buffer : rig.receiver->captured().buffers()) {
      kernel.push_back({buffer.name, {buffer.dtype, buffer.shape, bad.at(buffer.name).data(), {}}, nullptr});
    }
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(kernel), {}, false)); }),
                AllOf(HasSubstr("'" + name + "'"), HasSubstr(said), HasSubstr("at element 1")));
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
  }
}

TEST(Receiver, AnEngineThatMovedABufferIsRefusedAndLosesNothing) {
  ReceiverRig rig;
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const auto served = rig.engine.Served();
  rig.receiver->Stage(EagerSource(rig.Version(2)));
  rig.engine.table()[3].address += 16;
  EXPECT_THAT(ErrorOf([&] { rig.receiver->Commit(); }), HasSubstr("must never move"));
  rig.engine.table()[3].address -= 16;
  EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
  rig.receiver->Commit();  // still staged
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
}

TEST(Receiver, RefusesAnEngineWhoseBuffersAreNotTheModels) {
  ReceiverRig rig;
  std::vector<CapturedBuffer> table = rig.engine.table();
  table.pop_back();
  table[0].dtype = DType::kU8;
  Receiver receiver(testing::RigModel(rig.options), {}, {rig.options.recipe}, CapturedBuffers::Adopt(table));
  EXPECT_THAT(ErrorOf([&] { receiver.ReloadWeights(EagerSource(rig.Version(1))); }),
              AllOf(HasSubstr("'" + rig.engine.table().back().name + "'"), HasSubstr("'" + table[0].name + "'")));
}

// Another rank of the engine has failed: this one's attempt ends where it is, and the next one is a new one.
TEST(Receiver, AnAttemptThatIsGivenUpEndsBetweenTwoTensors) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    ReceiverRig rig({}, true, false, policy);
    const Weights a = rig.Version(1);
    const Weights b = rig.Version(2);
    rig.receiver->ReloadWeights(EagerSource(a));
    const auto served = rig.engine.Served();
    constexpr std::uint64_t kAttempt = 7;
    std::size_t taken = 0;
    auto next = [&]() -> std::optional<NamedTensor> {
      if (taken == 2) rig.receiver->Cancel(kAttempt);
      return taken < b.size() ? std::optional(b.at(taken++)) : std::nullopt;
    };
    const std::string error = ErrorOf(
        [&] {
          rig.receiver->Stage(FromIterator(MakeWeightsIterator(next), SpecsOf(b)), kAttempt);
          rig.receiver->Commit();
        },
        ErrorCode::kCancelled);
    EXPECT_THAT(error, HasSubstr("this attempt was given up"));
    EXPECT_EQ(taken, 3U);
    const bool torn = policy == CommitPolicy::kInPlace;
    EXPECT_EQ(rig.receiver->torn().has_value(), torn);
    EXPECT_EQ(Differences(rig.engine.Served(), served).empty(), !torn);
    // Word of it may also come before the attempt itself.
    rig.receiver->Cancel(kAttempt + 1);
    for (const std::uint64_t attempt : {kAttempt, kAttempt + 1}) {
      ErrorOf([&] { rig.receiver->Stage(EagerSource(b), attempt); }, ErrorCode::kCancelled);
    }
    rig.receiver->Stage(EagerSource(b), kAttempt + 2);
    rig.receiver->Commit();
    EXPECT_EQ(rig.receiver->attempt(), kAttempt + 2);
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(b)), IsEmpty());
  }
}

TEST(Receiver, WhatIsUnderWayCanBeGivenUpWithoutCountingAttempts) {
  ReceiverRig rig;
  const Weights a = rig.Version(1);
  const auto next = [&]() -> std::optional<NamedTensor> {
    rig.receiver->Cancel(rig.receiver->attempt());
    return a.at(0);
  };
  ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(next), SpecsOf(a))); },
          ErrorCode::kCancelled);
  rig.receiver->ReloadWeights(EagerSource(a));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(a)), IsEmpty());
}

}  // namespace
}  // namespace layercast
