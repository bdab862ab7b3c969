// A receiver whose engine lends memory back: what it keeps between reloads, and what is served.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "layercast/receiver.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;
using testing::SpecsOf;

// What memory holds that was given back and taken again.
void FillTensor(const CapturedBuffer& buffer) {
  const auto elements = static_cast<std::size_t>(NumElements(buffer.shape));
  std::memset(reinterpret_cast<void*>(buffer.address), 0, elements * BitsPerElement(buffer.dtype) / 8);
}

TEST(ReceiverSleep, ServesAndTakesVersionsAfterItsMemoryWasReleased) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    ReceiverRig rig({.recipe = "fp8_per_channel"}, /*direct=*/true, /*caching=*/false, policy);
    rig.receiver->ReleaseMemory();
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    rig.receiver->Stage(EagerSource(rig.Version(2)));
    rig.receiver->ReleaseMemory();
    EXPECT_THAT(ErrorOf([&] { rig.receiver->Commit(); }), HasSubstr("nothing is staged"));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
    EXPECT_NO_THROW(rig.receiver->VerifyServed());
    rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(3))), IsEmpty());
  }
}

TEST(ReceiverSleep, AfterItsVersionWasLostOnlyAWholeOneHeals) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    ReceiverRig rig({.recipe = "fp8_per_channel"}, /*direct=*/true, /*caching=*/false, policy);
    const Version served = rig.receiver->ReloadWeights(EagerSource(rig.Version(1))).version;
    rig.receiver->LoseServed();
    for (const CapturedBuffer& buffer : rig.engine.table()) FillTensor(buffer);
    ASSERT_TRUE(rig.receiver->torn());
    EXPECT_EQ(rig.receiver->torn()->from, served);
    EXPECT_FALSE(rig.receiver->version());
    EXPECT_THAT(ErrorOf([&] { rig.receiver->VerifyServed(); }), HasSubstr("torn"));
    EXPECT_FALSE(rig.receiver->RollBack());
    ReloadSource part = EagerSource(rig.Version(2));
    part.partial = true;
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(std::move(part)); }), HasSubstr("whole version"));
    EXPECT_TRUE(rig.receiver->torn());
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
  }
}

TEST(ReceiverSleep, ALayerwiseReloadKeepsItsMemory) {
  ReceiverRig rig;
  rig.receiver->record_metadata_for_reloading();
  rig.receiver->initialize_layerwise_reload(SpecsOf(rig.Version(1)));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->ReleaseMemory(); }), HasSubstr("already active"));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->LoseServed(); }), HasSubstr("already active"));
}

TEST(ReceiverSleep, ThatServesNothingYetLosesNothing) {
  ReceiverRig rig;
  rig.receiver->LoseServed();
  EXPECT_FALSE(rig.receiver->torn());
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
}

}  // namespace
}  // namespace layercast
