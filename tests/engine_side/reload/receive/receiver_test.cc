// The ways into a receiver: what comes by each of them, and what is staged and served then.
#include "layercast/receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::LazySource;
using testing::ReceiverRig;
using testing::SpecsOf;
using testing::TensorsOf;
using testing::Weights;
using testing::WriteCheckpoint;

TEST(Receiver, AllWaysInServeTheSameBytes) {
  for (const bool direct : {true, false}) {
    ReceiverRig rig({.recipe = "fp8_per_block", .parallel = {1, 2}}, direct);
    const Weights weights = rig.Version(1);
    const auto expected = rig.Expected(weights);
    const TempFolder folder;
    WriteCheckpoint(folder, weights);
    Digest digest;
    const auto serves = [&](const char* way, const std::function<ReloadReport()>& load) {
      const ReloadReport report = load();
      EXPECT_THAT(Differences(rig.engine.Served(), expected), IsEmpty()) << way;
      EXPECT_TRUE(rig.engine.CanariesAreAlive()) << way;
      if (!digest) digest = report.served_digest;
      EXPECT_EQ(report.served_digest, digest) << way;
      EXPECT_EQ(report.served_digest, rig.receiver->captured().ServedDigest());
      EXPECT_EQ(rig.receiver->version()->digest, report.version.digest);
      rig.receiver->ReloadWeights(EagerSource(rig.Version(9)));  // other bytes before the next way
    };
    serves("path", [&] { return rig.receiver->ReloadWeights(FromPath(folder.path())); });
    serves("origin", [&] { return rig.receiver->ReloadWeights(FromOrigin()); });
    serves("eager", [&] { return rig.receiver->ReloadWeights(EagerSource(weights)); });
    serves("lazy", [&] { return rig.receiver->ReloadWeights(LazySource(weights)); });
    serves("call by call", [&] {
      rig.receiver->record_metadata_for_reloading();
      rig.receiver->initialize_layerwise_reload(SpecsOf(weights));
      for (const NamedTensor& tensor : TensorsOf(weights)) {
        EXPECT_THAT(rig.receiver->load_weights(*MakeWeightsIterator({tensor})), ElementsAre(tensor.name));
      }
      return rig.receiver->finalize_layerwise_processing();
    });
  }
}

TEST(Receiver, AVersionIsNamedByItsWeightsNotByTheirOrder) {
  ReceiverRig rig;
  const Weights weights = rig.Version(1);
  const TempFolder folder;
  WriteCheckpoint(folder, weights);
  const Digest digest = rig.receiver->ReloadWeights(FromPath(folder.path())).version.digest;
  EXPECT_EQ(rig.receiver->ReloadWeights(EagerSource(weights)).version.digest, digest);
  std::vector<NamedTensor> tensors = TensorsOf(weights);
  std::vector<TensorSpec> specs = SpecsOf(weights);
  std::ranges::reverse(tensors);
  std::ranges::reverse(specs);
  EXPECT_EQ(rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), specs)).version.digest, digest);
  EXPECT_NE(rig.receiver->ReloadWeights(EagerSource(rig.Version(2))).version.digest, digest);
}

TEST(Receiver, ALayerOfOnlyPaddingIsServedAsZeros) {
  for (const bool direct : {true, false}) {
    ReceiverRig rig({.parallel = {3, 4}}, direct);
    const Weights weights = rig.Version(1);
    const TempFolder folder;
    WriteCheckpoint(folder, weights);
    const ReloadReport report = rig.receiver->ReloadWeights(FromPath(folder.path()));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(weights)), IsEmpty());
    EXPECT_EQ(report.layers, 9U);
  }
}

TEST(Receiver, NeedsATree) { EXPECT_THROW(Receiver(nullptr, {}, {}, CapturedBuffers::Adopt({})), Error); }

TEST(Receiver, GoesToAnotherVersionAndBack) {
  ReceiverRig rig;
  const Weights a = rig.Version(1);
  const Weights b = rig.Version(2);
  const ReloadReport first = rig.receiver->ReloadWeights(EagerSource(a));
  const auto served_a = rig.engine.Served();
  const ReloadReport second = rig.receiver->ReloadWeights(EagerSource(b));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(b)), IsEmpty());
  EXPECT_NE(second.served_digest, first.served_digest);
  EXPECT_NE(second.version.digest, first.version.digest);
  EXPECT_EQ(rig.receiver->ReloadWeights(EagerSource(a)).served_digest, first.served_digest);
  EXPECT_THAT(Differences(rig.engine.Served(), served_a), IsEmpty());
}

TEST(Receiver, StagingLeavesTheServedBytesAlone) {
  ReceiverRig rig;
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const auto before = rig.engine.Served();
  rig.receiver->Stage(EagerSource(rig.Version(2)));
  EXPECT_THAT(Differences(rig.engine.Served(), before), IsEmpty());
  rig.receiver->Abort();
  EXPECT_THAT(ErrorOf([&] { rig.receiver->Commit(); }), HasSubstr("nothing is staged"));
  EXPECT_NO_THROW(rig.receiver->VerifyServed());
  EXPECT_THAT(Differences(rig.engine.Served(), before), IsEmpty());
}

TEST(Receiver, TakesStagedMemoryThatOutlivedARank) {
  ReceiverRig rig;
  rig.receiver->Stage(EagerSource(rig.Version(2)));
  const Version staged = rig.receiver->staged_version();
  rig.receiver->Abort();
  rig.receiver->AdoptStaged(staged);
  rig.receiver->Commit();
  EXPECT_NO_THROW(rig.receiver->VerifyServed());
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
}

TEST(Receiver, TakesStagedKernelTensorsThatOutlivedARank) {
  ReceiverRig rig;
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const auto a = rig.engine.Served();
  std::vector<NamedTensor> kernel;
  for (const CapturedBuffer& buffer : rig.receiver->captured().buffers()) {
    kernel.push_back({buffer.name, {buffer.dtype, buffer.shape, a.at(buffer.name).data(), {}}, nullptr});
  }
  rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
  rig.receiver->Stage(FromIterator(MakeWeightsIterator(kernel), {}, /*is_checkpoint_format=*/false));
  rig.receiver->AdoptStaged(rig.receiver->staged_version());
  rig.receiver->Commit();
  EXPECT_NO_THROW(rig.receiver->VerifyServed());
  EXPECT_THAT(Differences(rig.engine.Served(), a), IsEmpty());
}

TEST(Receiver, KernelFormatIsCopiedStraightAndCheckedJustAsHard) {
  ReceiverRig rig;
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const auto a = rig.engine.Served();
  std::vector<NamedTensor> kernel;
  for (const CapturedBuffer& buffer : rig.receiver->captured().buffers()) {
    kernel.push_back({buffer.name, {buffer.dtype, buffer.shape, a.at(buffer.name).data(), {}}, nullptr});
  }
  rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
  const ReloadReport report =
      rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(kernel), {}, /*is_checkpoint_format=*/false));
  EXPECT_THAT(Differences(rig.engine.Served(), a), IsEmpty());
  EXPECT_GT(report.bytes, 0U);
  EXPECT_EQ(report.bytes, report.bytes_total);
  EXPECT_EQ(report.layers, 9U);

  const TempFolder folder;
  WriteSafetensors(folder / "model-rank-0-part-0.safetensors", kernel);
  rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
  rig.receiver->ReloadWeights(FromPath(folder.path(), false));
  EXPECT_THAT(Differences(rig.engine.Served(), a), IsEmpty());
  rig.receiver->ReloadWeights(FromOrigin());
  EXPECT_THAT(Differences(rig.engine.Served(), a), IsEmpty());

  kernel.pop_back();
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(kernel), {}, false)); }),
              HasSubstr("missing: '"));
  EXPECT_THAT(Differences(rig.engine.Served(), a), IsEmpty());
}

}  // namespace
}  // namespace layercast
