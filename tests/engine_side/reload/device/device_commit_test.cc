// Each commit policy of an engine on a device: what it writes and when, what it can put back, and what it keeps beside
// the live weights. Linked with a device that is played, and with a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/device/device_test.h"
#include "tests/support/reload/armed_failpoints.h"
#include "tests/support/reload/device_rig.h"

namespace layercast {
namespace {

using testing::ArmedFailpoints;
using testing::DeviceRig;
using testing::DeviceRigOptions;
using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LazySource;
using testing::ServedBytes;
using testing::TensorsOf;
using testing::Weights;

bool OfMlp(const std::string& name) { return name.find("mlp") != std::string::npos; }

// Models whose buffers lie in every way that a commit has to write, and to put back.
std::vector<DeviceRigOptions> EveryWay() {
  return {{.model = {.recipe = "fp8_per_channel"}},
          {.model = {.recipe = "nvfp4", .parallel = {1, 2}}, .strided = true},
          {.model = {.recipe = "fp8_per_block"}, .on_host = OfMlp},
          {.model = {.recipe = "int8_per_channel"},
           .on_host = [](const std::string& name) { return name.find("down_proj") != std::string::npos; },
           .layout = {96, 96, true, false}},
          {.model = {.parallel = {3, 4}}}};  // a rank whose part of the vocabulary is padding
}

// A number that the model's f16 cannot hold, in that tensor.
Weights WithInfinity(Weights weights, const std::string& tensor) {
  const float large = 70'000.0F;
  constexpr std::size_t kElement = 5;
  std::memcpy(weights.bytes(testing::IndexOf(weights, tensor)).data() + kElement * sizeof(large), &large,
              sizeof(large));
  return weights;
}

class DeviceCommit : public testing::DeviceTest {
 protected:
  void ExpectServes(const DeviceRig& rig, const Weights& weights) const {
    EXPECT_THAT(Differences(rig.engine.Memory(), rig.engine.ExpectedMemory(rig.Expected(weights))), IsEmpty());
  }
};

class DeviceCommitByPolicy : public DeviceCommit, public ::testing::WithParamInterface<CommitPolicy> {
 protected:
  DeviceRigOptions By(DeviceRigOptions options) const {
    options.commit = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Policies, DeviceCommitByPolicy,
                         ::testing::Values(CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace),
                         [](const auto& param) { return std::string(CommitPolicyName(param.param)); });

TEST_P(DeviceCommitByPolicy, WritesTheBytesOfTheSlowReferenceAndNothingAroundThem) {
  for (const DeviceRigOptions& options : EveryWay()) {
    SCOPED_TRACE(options.model.recipe);
    DeviceRig rig(*device_, By(options));
    for (const std::uint32_t seed : {1U, 2U}) {
      rig.receiver->ReloadWeights(EagerSource(rig.Version(seed)));
      ExpectServes(rig, rig.Version(seed));
    }
  }
}

TEST_P(DeviceCommitByPolicy, KeepsWhatAPartialVersionDoesNotTouch) {
  for (const DeviceRigOptions& options : EveryWay()) {
    SCOPED_TRACE(options.model.recipe);
    DeviceRig rig(*device_, By(options));
    Weights served = rig.Version(1);
    rig.receiver->ReloadWeights(EagerSource(served));
    const Weights next = rig.Version(2);
    std::vector<NamedTensor> tensors;
    std::vector<TensorSpec> specs;
    for (std::size_t i = 0; i < next.size(); ++i) {
      if (next.spec(i).name.find("self_attn") == std::string::npos) continue;
      served.bytes(i) = next.bytes(i);
      tensors.push_back(next.at(i));
      specs.push_back(next.spec(i));
    }
    ASSERT_FALSE(tensors.empty());
    ReloadSource source = FromIterator(MakeWeightsIterator(tensors), specs);
    source.partial = true;
    rig.receiver->ReloadWeights(std::move(source));
    ExpectServes(rig, served);
  }
}

TEST_P(DeviceCommitByPolicy, TakesWhatIsInKernelFormat) {
  for (const bool on_host : {false, true}) {
    DeviceRig rig(*device_, By({.model = {.recipe = "fp8_per_channel"},
                                .chunk_bytes = 5000,
                                .on_host = [&](const std::string& name) { return on_host && OfMlp(name); }}));
    const ServedBytes kernel = rig.Expected(rig.Version(3));
    std::vector<NamedTensor> tensors;
    std::vector<TensorSpec> specs;
    for (const CapturedBuffer& buffer : rig.engine.table()) {
      tensors.push_back({buffer.name, {buffer.dtype, buffer.shape, kernel.at(buffer.name).data(), {}}, nullptr});
      specs.push_back({buffer.name, buffer.dtype, buffer.shape});
    }
    rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), specs, /*is_checkpoint_format=*/false));
    EXPECT_THAT(Differences(rig.Served(), kernel), IsEmpty());
  }
}

// Read back from the device twice over: what was processed, and what is served.
TEST_P(DeviceCommitByPolicy, HasTheDigestsOfAnEngineInHostMemory) {
  DeviceRig rig(*device_, By({.model = {.recipe = "fp8_per_tensor"}, .on_host = OfMlp}));
  testing::ReceiverRig on_host({.recipe = "fp8_per_tensor"});
  const ReloadReport report = rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const ReloadReport expected = on_host.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  EXPECT_EQ(report.served_digest, expected.served_digest);
  EXPECT_EQ(report.version, expected.version);
  EXPECT_EQ(report.layers, expected.layers);
  EXPECT_EQ(report.staged_bytes, expected.staged_bytes);
}

TEST_P(DeviceCommitByPolicy, AllocatesNothingInAReloadAfterTheFirst) {
  for (const bool strided : {false, true}) {
    DeviceRig rig(*device_, By({.model = {.recipe = "fp8_per_block", .layers = 3}, .strided = strided}));
    rig.receiver->ReloadWeights(LazySource(rig.Version(1)));
    const std::size_t first = device_->allocations();
    for (std::uint32_t seed = 2; seed < 5; ++seed) rig.receiver->ReloadWeights(LazySource(rig.Version(seed)));
    EXPECT_EQ(device_->allocations(), first);
  }
}

// One wait for a layer, one for each turn of the ring, and a few for the whole: tensors cost none.
TEST_P(DeviceCommitByPolicy, TheHostWaitsForLayersNotForTensors) {
  DeviceRig rig(*device_, By({.model = {.recipe = "fp8_per_channel", .layers = 8}, .chunk_bytes = 4U << 20}));
  const Weights weights = rig.Version(1);
  rig.receiver->Stage(EagerSource(weights));
  const std::size_t staged = device_->waits();
  rig.receiver->Commit();
  EXPECT_LE(device_->waits(), rig.receiver->report().layers + 9);
  EXPECT_TRUE(GetParam() != CommitPolicy::kStaged || device_->waits() <= staged + 1);
}

TEST_P(DeviceCommitByPolicy, ReadsTensorsOnlyUntilTheIteratorMovesOn) {
  DeviceRig rig(*device_, By({.model = {.recipe = "fp8_per_tensor", .layers = 2}}));
  rig.receiver->ReloadWeights(LazySource(rig.Version(1)));
  ExpectServes(rig, rig.Version(1));
}

TEST_P(DeviceCommitByPolicy, RefusesToCommitIntoABufferThatMoved) {
  DeviceRig rig(*device_, By({}));
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  rig.engine.table()[2].address = device_->Allocate(1 << 20);
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }),
              HasSubstr(rig.engine.table()[2].name));
}

// What is wrong with a layer is known after the next one was processed. The layer is not written before.
TEST_P(DeviceCommitByPolicy, WritesNothingOfALayerThatHoldsAnInfinity) {
  const std::string gate_up = "model.layers.0.mlp.gate_up_proj.weight";
  for (const char* recipe :
       {"none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "mxfp4", "nvfp4", "int8_per_channel"}) {
    SCOPED_TRACE(recipe);
    DeviceRig rig(*device_, By({.model = {.recipe = recipe, .dtype = DType::kF16, .source = DType::kF32}}));
    const Weights good = rig.Version(1);
    rig.receiver->ReloadWeights(EagerSource(good));
    const Weights bad = WithInfinity(rig.Version(2), "model.layers.0.mlp.up_proj.weight");
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(bad)); }),
                HasSubstr("layer model.layers.0.mlp.gate_up_proj: 'model.layers.0.mlp.up_proj.weight': row 0, column 5 "
                          "holds 70000 (f32), which is beyond 65504, the largest finite f16"));
    EXPECT_EQ(rig.receiver->torn().has_value(), GetParam() == CommitPolicy::kInPlace);
    if (GetParam() == CommitPolicy::kInPlace) {
      EXPECT_EQ(rig.Served().at(gate_up), rig.Expected(good).at(gate_up));
    } else {
      ExpectServes(rig, good);
    }
    rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
    EXPECT_FALSE(rig.receiver->torn());
    ExpectServes(rig, rig.Version(3));
  }
}

TEST_P(DeviceCommitByPolicy, AnInfinityInTheFirstLayerTearsNothing) {
  DeviceRig rig(*device_, By({.model = {.dtype = DType::kF16, .source = DType::kF32}}));
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const Weights bad = WithInfinity(rig.Version(2), "model.embed_tokens.weight");
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(bad)); }),
              HasSubstr("'model.embed_tokens.weight': row 0, column 5 holds 70000 (f32), which is beyond"));
  EXPECT_FALSE(rig.receiver->torn());
  ExpectServes(rig, rig.Version(1));
}

TEST_P(DeviceCommitByPolicy, AStreamThatEndsEarlyLeavesTheOldVersionOrIsSaidToTear) {
  DeviceRig rig(*device_, By({.model = {.recipe = "fp8_per_channel"}}));
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const Weights half = rig.Version(2);
  std::vector<NamedTensor> tensors = TensorsOf(half);
  tensors.resize(tensors.size() / 2);
  EXPECT_THAT(
      ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), testing::SpecsOf(half))); }),
      HasSubstr("the weights ended before"));
  EXPECT_EQ(rig.receiver->torn().has_value(), GetParam() == CommitPolicy::kInPlace);
  if (GetParam() != CommitPolicy::kInPlace) ExpectServes(rig, rig.Version(1));
  rig.receiver->ReloadWeights(EagerSource(half));
  ExpectServes(rig, half);
}

TEST_F(DeviceCommit, UndoPutsBackWhateverWasWritten) {
  for (DeviceRigOptions options : EveryWay()) {
    options.commit = CommitPolicy::kUndo;
    for (const int written : {1, 4, 9}) {
      SCOPED_TRACE(options.model.recipe + " after " + std::to_string(written));
      const ArmedFailpoints armed("commit.copy=throw@" + std::to_string(written));
      DeviceRig rig(*device_, options);
      rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
      EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("commit.copy"));
      EXPECT_FALSE(rig.receiver->torn());
      ExpectServes(rig, rig.Version(1));
    }
  }
}

TEST_F(DeviceCommit, UndoTakesBackACommitThatSucceededHere) {
  for (DeviceRigOptions options : EveryWay()) {
    SCOPED_TRACE(options.model.recipe);
    options.commit = CommitPolicy::kUndo;
    DeviceRig rig(*device_, options);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    const std::size_t allocations = device_->allocations();
    EXPECT_TRUE(rig.receiver->RollBack());
    EXPECT_EQ(device_->allocations(), allocations) << "a device that is full must not keep the old version out";
    ExpectServes(rig, rig.Version(1));
  }
}

TEST_F(DeviceCommit, UndoThatFailsHalfWayIsBegunAgain) {
  const ArmedFailpoints armed("commit.copy=throw@9,commit.undo=throw@4");
  DeviceRig rig(*device_, {.model = {.recipe = "fp8_per_channel"}, .commit = CommitPolicy::kUndo});
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("commit.copy"));
  EXPECT_TRUE(rig.receiver->torn());
  EXPECT_TRUE(rig.receiver->RollBack());
  EXPECT_FALSE(rig.receiver->torn());
  ExpectServes(rig, rig.Version(1));
}

TEST_F(DeviceCommit, AVersionThatLandsWholeHealsWhatCouldNotBePutBack) {
  const ArmedFailpoints armed("commit.copy=throw@9,commit.undo=throw@4");
  DeviceRig rig(*device_, {.model = {.recipe = "fp8_per_channel"}, .commit = CommitPolicy::kUndo});
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("commit.copy"));
  EXPECT_TRUE(rig.receiver->torn());
  rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
  EXPECT_FALSE(rig.receiver->torn());
  ExpectServes(rig, rig.Version(3));
}

// What a reload takes of a device, and the size of the version there.
std::pair<std::size_t, std::size_t> PeakOf(const DeviceRigOptions& options) {
  std::string why;
  const auto device = testing::MakeTestDevice(why);
  DeviceRig rig(*device, options);
  const TempFolder folder;
  testing::WriteCheckpoint(folder, rig.Version(1));
  rig.receiver->ReloadWeights(FromPath(folder.path().string()));
  return {device->peak_bytes(), rig.receiver->report().staged_bytes};
}

TEST_F(DeviceCommit, OnlyStagedKeepsASecondCopyOnTheDevice) {
  const auto [staged, copy] = PeakOf({.model = {.layers = 24}});
  for (const CommitPolicy policy : testing::kLayerwise) {
    EXPECT_LT(PeakOf({.model = {.layers = 24}, .commit = policy}).first + copy / 2, staged) << CommitPolicyName(policy);
  }
}

TEST_F(DeviceCommit, RowsThatAreQuantizedAsTheyArriveAreNotMaterialized) {
  const DeviceRigOptions direct{.model = {.recipe = "fp8_per_channel"}, .chunk_bytes = 5000};
  DeviceRigOptions buffered = direct;
  buffered.direct = false;
  std::size_t largest = 0;  // of the layers in full precision
  for (const TensorSpec& spec : testing::SpecsOf(testing::RigWeights(direct.model, 1))) {
    largest = std::max(largest, static_cast<std::size_t>(spec.num_bytes()));
  }
  EXPECT_LE(PeakOf(direct).first + largest, PeakOf(buffered).first);
}

}  // namespace
}  // namespace layercast
