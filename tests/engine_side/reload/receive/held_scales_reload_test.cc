// Scales of activations and caches on their way through a receiver, version after version.
#include "layercast/model/held_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "src/tensor/element.h"
#include "tests/support/error_of.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RigOptions Holding(std::string recipe = "fp8_per_channel") {
  return {.recipe = std::move(recipe), .parallel = {1, 2}, .layers = 2, .scales = {.inputs = true, .kv_cache = true}};
}

float NumberOf(const ServedBytes& served, const std::string& name) {
  float number = 0;
  std::memcpy(&number, served.at(name).data(), sizeof(number));
  return number;
}

TEST(HeldScales, AreEachVersionsOwn) {
  const std::string attention = "model.layers.1.self_attn.";
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    for (const bool direct : {true, false}) {
      ReceiverRig rig(Holding(), direct, false, policy);
      for (const std::uint32_t seed : {1U, 2U, 3U, 1U}) {  // 2 has none of caches
        rig.receiver->ReloadWeights(EagerSource(rig.Version(seed)));
        const ServedBytes served = rig.engine.Served();
        EXPECT_THAT(Differences(served, rig.Expected(rig.Version(seed))), IsEmpty());
        const auto times = static_cast<float>(seed + 1);
        EXPECT_EQ(NumberOf(served, attention + "attn.v_scale"), seed == 2 ? 1.0F : 0.5F * times);
        EXPECT_EQ(NumberOf(served, attention + "qkv_proj.input_scale"), 0.25F * times);
      }
      EXPECT_TRUE(rig.engine.CanariesAreAlive());
    }
  }
}

TEST(HeldScales, ComeFromDisk) {
  ReceiverRig rig(Holding());
  const TempFolder folder;
  WriteCheckpoint(folder, rig.Version(2));
  rig.receiver->ReloadWeights(FromPath(folder.path().string()));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
}

TEST(HeldScales, AreAboveZeroInDummyWeights) {
  ReceiverRig rig(Holding());
  rig.receiver->ReloadWeights(FromDummy(1));
  for (const auto& [name, bytes] : rig.engine.Served()) {
    if (!name.ends_with("input_scale") && !name.ends_with("attn.k_scale") && !name.ends_with("attn.v_scale")) continue;
    EXPECT_GT(ElementValue(DType::kF32, bytes.data(), 0), 0) << name;
  }
}

// The old version's scales stay.
TEST(HeldScales, ThatAreNotAboveZeroAreRefusedByName) {
  for (const bool direct : {true, false}) {
    ReceiverRig rig(Holding(), direct);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    for (const char* tensor : {"model.layers.1.self_attn.k_proj.k_scale", "model.layers.1.mlp.down_proj.input_scale"}) {
      Weights wrong = rig.Version(3);
      wrong.bytes(IndexOf(wrong, tensor))[1] |= std::byte{0x80};  // its sign
      EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(wrong)); }),
                  AllOf(HasSubstr(tensor), HasSubstr("expected finite scales above zero, got -")));
      EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
    }
  }
}

TEST(HeldScales, ThatAVersionHasNoneOfAreMissing) {
  ReceiverRig rig(Holding());
  RigOptions none = Holding();
  none.scales = {};
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(RigWeights(none, 1))); }),
              AllOf(HasSubstr("8 missing"), HasSubstr("model.layers.0.self_attn.qkv_proj.input_scale"),
                    HasSubstr("model.layers.1.self_attn.qkv_proj.input_scale"), Not(HasSubstr("attn.k_scale"))));
}

}  // namespace
}  // namespace layercast::testing
