// What a receiver serves, and says, after a reload that failed anywhere, under each commit policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/reload/armed_failpoints.h"
#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AnyOf;
using testing::ArmedFailpoints;
using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kLayerwise;
using ::testing::Not;
using testing::ReceiverRig;
using testing::SpecsOf;
using testing::TensorsOf;
using testing::Weights;

// Where a reload is made to fail. `written`: layers of the version were in the captured buffers by then.
struct Fault {
  const char* failpoint;
  bool written;
};

const Fault kFaults[] = {
    {"layer_buffer=throw", false}, {"layer_buffer=throw@9", true},   {"materialize=throw", false},
    {"materialize=throw@3", true}, {"fuse_and_shard=throw@5", true}, {"quantize=throw", false},
    {"quantize=throw@4", true},    {"verify=throw", true},           {"commit.prepare=throw", false},
    {"commit.copy=throw", false},  {"commit.copy=throw@1", true},    {"commit.copy=throw@7", true},
};

TEST(ReceiverCommit, UndoServesTheOldVersionAfterAFailureAnywhere) {
  for (const auto& [failpoint, written] : kFaults) {
    SCOPED_TRACE(failpoint);
    const ArmedFailpoints armed(failpoint);
    ReceiverRig rig({.recipe = "fp8_per_channel"}, false, false, CommitPolicy::kUndo);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("failpoint"));
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_EQ(*rig.receiver->version(), version);
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
    EXPECT_NO_THROW(rig.receiver->VerifyServed());
    rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(3))), IsEmpty());
  }
}

TEST(ReceiverCommit, InPlaceIsTornAfterTheFirstWriteUntilAWholeVersionLands) {
  for (const auto& [failpoint, written] : kFaults) {
    SCOPED_TRACE(failpoint);
    const ArmedFailpoints armed(failpoint);
    ReceiverRig rig({.recipe = "fp8_per_channel"}, false, false, CommitPolicy::kInPlace);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("failpoint"));
    ASSERT_EQ(rig.receiver->torn().has_value(), written);
    EXPECT_EQ(Differences(rig.engine.Served(), served).empty(), !written);
    EXPECT_EQ(rig.layer_memory.current_bytes(), 0U);
    if (written) {
      EXPECT_EQ(rig.receiver->torn()->from, version);
      EXPECT_EQ(rig.receiver->torn()->to.lineage, "iterator");
      EXPECT_FALSE(rig.receiver->version());
      EXPECT_THAT(ErrorOf([&] { rig.receiver->VerifyServed(); }), HasSubstr("torn"));
      // One that fails before it writes heals nothing.
      std::vector<TensorSpec> specs = SpecsOf(rig.Version(2));
      specs.pop_back();
      EXPECT_THAT(ErrorOf([&] {
                    rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(std::vector<NamedTensor>()), specs));
                  }),
                  HasSubstr("lm_head"));
      ASSERT_TRUE(rig.receiver->torn());
      EXPECT_EQ(rig.receiver->torn()->from, version);
    } else {
      EXPECT_EQ(*rig.receiver->version(), version);
      EXPECT_NO_THROW(rig.receiver->VerifyServed());
    }
    rig.receiver->ReloadWeights(EagerSource(rig.Version(3)));
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_TRUE(rig.receiver->version());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(3))), IsEmpty());
  }
}

TEST(ReceiverCommit, BadBytesInTheMiddleNeverReachACapturedBuffer) {
  const std::vector<std::byte> nan(65U * 128 * 2, std::byte{0xFF});
  for (const CommitPolicy policy : kLayerwise) {
    for (const bool direct : {true, false}) {
      ReceiverRig rig({.recipe = "fp8_per_channel"}, direct, false, policy);
      rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
      const auto old = rig.engine.Served();
      const Weights b = rig.Version(2);
      const auto expected = rig.Expected(b);
      std::vector<NamedTensor> tensors = TensorsOf(b);
      tensors.back().tensor.data = nan.data();
      EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromIterator(MakeWeightsIterator(tensors), SpecsOf(b))); }),
                  HasSubstr("'lm_head.weight'"));
      EXPECT_EQ(rig.receiver->torn().has_value(), policy == CommitPolicy::kInPlace);
      for (const auto& [name, bytes] : rig.engine.Served()) {
        EXPECT_THAT(bytes, AnyOf(old.at(name), expected.at(name))) << name;
      }
      EXPECT_EQ(rig.engine.Served().at("lm_head.weight"), old.at("lm_head.weight"));
    }
  }
}

TEST(ReceiverCommit, ALoadThatIsGivenUpCallByCallIsPutBack) {
  for (const CommitPolicy policy : kLayerwise) {
    ReceiverRig rig({.recipe = "fp8_per_channel"}, true, false, policy);
    const Weights a = rig.Version(1);
    const Weights b = rig.Version(2);
    rig.receiver->ReloadWeights(EagerSource(a));
    const auto served = rig.engine.Served();
    rig.receiver->record_metadata_for_reloading();
    for (const std::size_t tensors : {std::size_t{0}, std::size_t{5}}) {
      rig.receiver->initialize_layerwise_reload(SpecsOf(b));
      std::vector<NamedTensor> some = TensorsOf(b);
      some.resize(tensors);
      rig.receiver->load_weights(*MakeWeightsIterator(some));
      rig.receiver->Abort();
      const bool torn = policy == CommitPolicy::kInPlace && tensors != 0;
      EXPECT_EQ(rig.receiver->torn().has_value(), torn);
      EXPECT_EQ(Differences(rig.engine.Served(), served).empty(), !torn);
    }
    rig.receiver->initialize_layerwise_reload(SpecsOf(b));
    rig.receiver->load_weights(*b.Stream());
    rig.receiver->finalize_layerwise_processing();
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(b)), IsEmpty());
  }
}

TEST(ReceiverCommit, RollingBackEndsALoadThatIsGoingOnCallByCall) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    const Weights b = rig.Version(2);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    rig.receiver->record_metadata_for_reloading();
    rig.receiver->initialize_layerwise_reload(SpecsOf(b));
    std::vector<NamedTensor> half = TensorsOf(b);
    const std::vector<NamedTensor> rest(half.begin() + 8, half.end());
    half.resize(8);
    rig.receiver->load_weights(*MakeWeightsIterator(half));
    const bool whole = policy != CommitPolicy::kInPlace;
    EXPECT_EQ(rig.receiver->RollBack(), whole);
    EXPECT_THAT(ErrorOf([&] { rig.receiver->load_weights(*MakeWeightsIterator(rest)); }),
                HasSubstr("initialize_layerwise_reload must be called"));
    EXPECT_EQ(rig.receiver->torn().has_value(), !whole);
    EXPECT_EQ(Differences(rig.engine.Served(), served).empty(), whole);
    rig.receiver->ReloadWeights(EagerSource(b));
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(b)), IsEmpty());
  }
}

// As where another rank of the engine failed.
TEST(ReceiverCommit, ACommittedVersionIsRolledBackUntilTheNextStage) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    EXPECT_EQ(rig.receiver->RollBack(), policy == CommitPolicy::kUndo);
    if (policy == CommitPolicy::kUndo) {
      EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
      EXPECT_EQ(*rig.receiver->version(), version);
      EXPECT_NO_THROW(rig.receiver->VerifyServed());
    } else {
      EXPECT_EQ(rig.receiver->torn()->from, version);
    }
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    EXPECT_FALSE(rig.receiver->torn());
    rig.receiver->Stage(EagerSource(rig.Version(3)));
    EXPECT_TRUE(rig.receiver->RollBack()) << "there is no way back beyond the last Stage";
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
  }
}

TEST(ReceiverCommit, ServedBytesThatAreNotWhatWasCommittedAreNoVersion) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const Version before = *rig.receiver->version();
    const Version after = rig.receiver->ReloadWeights(EagerSource(rig.Version(2))).version;
    *rig.engine.table()[3].address ^= std::byte{1};
    EXPECT_THAT(ErrorOf([&] { rig.receiver->VerifyServed(); }, ErrorCode::kCorrupt), HasSubstr("read back"));
    EXPECT_FALSE(rig.receiver->version());
    ASSERT_TRUE(rig.receiver->torn());
    EXPECT_EQ(rig.receiver->torn()->from, before);
    EXPECT_EQ(rig.receiver->torn()->to, after);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_EQ(*rig.receiver->version(), after);
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
  }
}

// No committer knows of bytes that changed after the next reload had begun: nothing but a whole version mends them.
TEST(ReceiverCommit, BytesThatAreLostLaterStayLostUntilAWholeVersionIsCommitted) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    SCOPED_TRACE(CommitPolicyName(policy));
    ReceiverRig rig({}, true, false, policy);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    rig.receiver->Stage(EagerSource(rig.Version(2)));
    rig.receiver->Abort();
    *rig.engine.table()[3].address ^= std::byte{1};
    EXPECT_THROW(rig.receiver->VerifyServed(), Error);
    ASSERT_TRUE(rig.receiver->torn());
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPath("/nowhere")); }), HasSubstr("/nowhere"));
    EXPECT_TRUE(rig.receiver->torn());
    EXPECT_FALSE(rig.receiver->version());
    rig.receiver->Stage(EagerSource(rig.Version(2)));
    EXPECT_FALSE(rig.receiver->RollBack());
    EXPECT_TRUE(rig.receiver->torn());
    rig.receiver->ReloadWeights(EagerSource(rig.Version(2)));
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(rig.Version(2))), IsEmpty());
  }
}

TEST(ReceiverCommit, ARollBackThatFailsTearsAndIsTriedAgain) {
  const ArmedFailpoints armed("layer_buffer=throw@9,commit.undo=throw@1");
  for (const bool by_next_reload : {false, true}) {
    ReceiverRig rig({.recipe = "fp8_per_channel"}, false, false, CommitPolicy::kUndo);
    rig.receiver->ReloadWeights(EagerSource(rig.Version(1)));
    const auto served = rig.engine.Served();
    const Version version = *rig.receiver->version();
    EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(EagerSource(rig.Version(2))); }), HasSubstr("layer_buffer"));
    ASSERT_TRUE(rig.receiver->torn());
    EXPECT_EQ(rig.receiver->torn()->from, version);
    EXPECT_THAT(Differences(rig.engine.Served(), served), Not(IsEmpty()));
    if (by_next_reload) {
      EXPECT_THAT(ErrorOf([&] { rig.receiver->ReloadWeights(FromPath("/nowhere")); }), HasSubstr("/nowhere"));
    } else {
      EXPECT_TRUE(rig.receiver->RollBack());
    }
    EXPECT_FALSE(rig.receiver->torn());
    EXPECT_EQ(*rig.receiver->version(), version);
    EXPECT_THAT(Differences(rig.engine.Served(), served), IsEmpty());
  }
}

}  // namespace
}  // namespace layercast
