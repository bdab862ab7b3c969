// The last chance to refuse: what Prepare checks, and what it leaves alone. Failpoints say how often it checks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

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
using testing::Weights;
using testing::WriteCheckpoint;

// A receiver reads them when it is made.
class ArmedRig {
 public:
  explicit ArmedRig(const char* failpoints) {
    ::setenv("LAYERCAST_FAILPOINTS", failpoints, 1);
    rig_ = std::make_unique<ReceiverRig>();
    ::unsetenv("LAYERCAST_FAILPOINTS");
  }
  ReceiverRig* operator->() const { return rig_.get(); }

 private:
  std::unique_ptr<ReceiverRig> rig_;
};

TEST(ReceiverPrepare, NeedsSomethingStaged) {
  ReceiverRig rig;
  EXPECT_THAT(ErrorOf([&] { rig.receiver->Prepare(); }), HasSubstr("nothing is staged"));
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  EXPECT_THAT(ErrorOf([&] { rig.receiver->Prepare(); }), HasSubstr("nothing is staged")) << "all was committed";
  rig.receiver->Stage(EagerSource(rig.Version(2)));
  rig.receiver->Abort();
  EXPECT_THAT(ErrorOf([&] { rig.receiver->Prepare(); }), HasSubstr("nothing is staged"));
}

TEST(ReceiverPrepare, ChangesNothingThatIsServed) {
  ReceiverRig rig;
  rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
  const auto served = rig.engine.Served();
  const auto version = rig.receiver->version();
  rig.receiver->Stage(EagerSource(rig.Version(2)));
  rig.receiver->Prepare();
  EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
  EXPECT_EQ(rig.receiver->version(), version);
  rig.receiver->Commit();
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
}

TEST(ReceiverPrepare, RefusesAnEngineThatMovedABufferAndMayBeAskedAgain) {
  ReceiverRig rig;
  rig.receiver->Stage(EagerSource(rig.Version(1)));
  rig.engine.table()[3].address += 16;
  EXPECT_THAT(ErrorOf([&] { rig.receiver->Prepare(); }), HasSubstr("must never move"));
  rig.engine.table()[3].address -= 16;
  rig.receiver->Prepare();
  rig.receiver->Commit();
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(1))), IsEmpty());
}

TEST(ReceiverPrepare, ChecksOnceForEachStagedVersion) {
  const ArmedRig rig("commit.prepare=throw@1");  // an engine's first load passes it by
  for (std::uint32_t version = 1; version <= 2; ++version) {
    rig->receiver->Stage(EagerSource(rig->Version(version)));
    rig->receiver->Prepare();
    rig->receiver->Prepare();
    rig->receiver->Commit();
  }
  rig->receiver->Stage(EagerSource(rig->Version(3)));
  EXPECT_THAT(ErrorOf([&] { rig->receiver->Commit(); }), HasSubstr("failpoint commit.prepare")) << "the second pass";
  EXPECT_THAT(Differences(rig->engine.Served(), rig->Expected(rig->Version(2))), IsEmpty());
}

TEST(ReceiverPrepare, AVersionStagedAfterAPreparedOneIsCheckedAnew) {
  const ArmedRig rig("commit.prepare=throw@1");
  rig->receiver->ReloadWeights(EagerSource(rig->Version(1)));
  rig->receiver->Stage(EagerSource(rig->Version(2)));
  rig->receiver->Prepare();
  rig->receiver->Stage(EagerSource(rig->Version(3)));
  EXPECT_THAT(ErrorOf([&] { rig->receiver->Prepare(); }), HasSubstr("failpoint commit.prepare"));
}

TEST(ReceiverFailPoints, LeaveTheFirstLoadOfAnEnginesOwnCheckpointAlone) {
  const ArmedRig rig("verify=throw");
  const TempFolder folder;
  WriteCheckpoint(folder, rig->Version(1));
  rig->receiver->ReloadWeights(FromPath(folder.path()));
  EXPECT_THAT(ErrorOf([&] { rig->receiver->ReloadWeights(FromPath(folder.path())); }), HasSubstr("failpoint verify"));
}

TEST(ReceiverFailPoints, StrikeALoadCallByCallThatComesAfterOneThatTheyLeftAlone) {
  const ArmedRig rig("layer_buffer=throw");
  const Weights weights = rig->Version(1);
  rig->receiver->ReloadWeights(EagerSource(weights));
  rig->receiver->record_metadata_for_reloading();
  rig->receiver->initialize_layerwise_reload(SpecsOf(weights));
  EXPECT_THAT(ErrorOf([&] { rig->receiver->load_weights(*weights.Stream()); }), HasSubstr("failpoint layer_buffer"));
}

}  // namespace
}  // namespace layercast
