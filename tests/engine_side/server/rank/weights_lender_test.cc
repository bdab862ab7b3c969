// What one rank lends, another one of the same layout serves, byte for byte, and nothing else.
#include "engine_side/server/rank/weights_lender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/reload/receiver_rig.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using testing::Differences;
using testing::EagerSource;
using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ReceiverRig;

class WeightsLenderTest : public ::testing::Test {
 protected:
  void Load(std::uint32_t seed) {
    const WeightsLender::Change change(lender_, *from_.receiver);
    version_ = from_.receiver->ReloadWeights(EagerSource(from_.Version(seed))).version;
  }
  ReloadSource Lent() {
    return FromEngineRank(lender_.Lend(version_, {}), version_, from_.receiver->captured().ServedDigest());
  }

  ReceiverRig from_{{.recipe = "fp8_per_channel", .parallel = {1, 2}}};
  WeightsLender lender_{from_.receiver->captured()};
  Version version_;
};

TEST_F(WeightsLenderTest, AnotherRankServesTheSameBytesUnderTheSameVersion) {
  for (const CommitPolicy policy : {CommitPolicy::kStaged, CommitPolicy::kUndo, CommitPolicy::kInPlace}) {
    for (const char* channel : {"inproc", "shm", "zmq"}) {
      SCOPED_TRACE(std::string(CommitPolicyName(policy)) + " " + channel);
      ReceiverRig to(from_.options, true, false, policy);
      to.receiver->SetChannel(channel);
      for (const std::uint32_t seed : {1U, 2U}) {
        Load(seed);
        const ReloadReport report = to.receiver->ReloadWeights(Lent());
        EXPECT_EQ(report.version, version_);
        EXPECT_EQ(report.channel, channel);
        EXPECT_EQ(report.bytes, report.bytes_total);
        EXPECT_GT(report.bytes, 0U);
        EXPECT_EQ(report.cast.size() + report.skipped.size(), 0U);
        EXPECT_THAT(Differences(to.engine.Served(), from_.engine.Served()), IsEmpty());
        EXPECT_TRUE(to.engine.CanariesAreAlive());
      }
    }
  }
}

TEST_F(WeightsLenderTest, ACommitEndsWhatWasLentBefore) {
  Load(1);
  ReceiverRig to(from_.options);
  to.receiver->ReloadWeights(EagerSource(to.Version(2)));
  const auto served = to.engine.Served();
  ReloadSource lent = Lent();
  { const WeightsLender::Change change(lender_, *from_.receiver); }
  EXPECT_THAT(ErrorOf([&] { to.receiver->ReloadWeights(std::move(lent)); }), HasSubstr("taken another version"));
  EXPECT_THAT(Differences(to.engine.Served(), served), IsEmpty());
  to.receiver->ReloadWeights(Lent());
  EXPECT_THAT(Differences(to.engine.Served(), from_.engine.Served()), IsEmpty());
}

TEST_F(WeightsLenderTest, BytesThatAreNotThoseThatWereLentAreRefused) {
  Load(1);
  ReceiverRig to(from_.options);
  to.receiver->ReloadWeights(EagerSource(to.Version(2)));
  const auto served = to.engine.Served();
  const Digest other{.high = 1, .low = 2};
  EXPECT_THAT(ErrorOf([&] { to.receiver->ReloadWeights(FromEngineRank(lender_.Lend(version_, {}), version_, other)); }),
              HasSubstr("digest of its served bytes expected " + other.ToHex() + ", got " +
                        from_.receiver->captured().ServedDigest().ToHex()));
  EXPECT_THAT(Differences(to.engine.Served(), served), IsEmpty());
}

TEST_F(WeightsLenderTest, ARankOfAnotherLayoutIsToldTheDifferences) {
  Load(1);
  ReceiverRig to({.recipe = "none", .parallel = {1, 2}});
  EXPECT_THAT(ErrorOf([&] { to.receiver->ReloadWeights(Lent()); }),
              AllOf(HasSubstr("not this engine's kernel tensors"), HasSubstr("weight_scale")));
}

TEST_F(WeightsLenderTest, ARankOfAnotherConfigurationIsRefusedUnlessItAllowsThat) {
  Load(1);
  ReceiverRig to(from_.options);
  to.receiver->ReloadWeights(EagerSource(to.Version(2)));
  const auto served = to.engine.Served();
  WeightsLender other(from_.receiver->captured(), R"({"rope_theta": 77})");
  const auto lent = [&] {
    return FromEngineRank(other.Lend(version_, {}), version_, from_.receiver->captured().ServedDigest());
  };
  EXPECT_THAT(ErrorOf([&] { to.receiver->ReloadWeights(lent()); }, ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("engine at tcp://"), HasSubstr("rope_theta: expected 10000.0, got 77.0")));
  EXPECT_THAT(Differences(to.engine.Served(), served), IsEmpty());
  ReloadSource allowed = lent();
  allowed.allow_config_change = true;
  EXPECT_EQ(to.receiver->ReloadWeights(std::move(allowed)).config_changes.size(), 1U);
  EXPECT_THAT(Differences(to.engine.Served(), from_.engine.Served()), IsEmpty());
}

// A borrower draws for itself, from the norms as they were published.
TEST_F(WeightsLenderTest, NormsAreLentCleanWithTheNoiseThatBorrowersAdd) {
  const Noise noise{.sigma = 0.01F, .seed = 5};
  const testing::Weights published = from_.Version(1);
  const auto load = [&](const Noise& drawn) {
    const WeightsLender::Change change(lender_, *from_.receiver);
    ReloadSource source = EagerSource(published);
    source.noise = drawn;
    version_ = from_.receiver->ReloadWeights(std::move(source)).version;
  };
  const auto lent = [&] {
    return FromEngineRank(lender_.Lend(version_, {}), version_, from_.receiver->clean().ServedDigest());
  };
  load(noise);
  const auto noisy = from_.engine.Served();
  EXPECT_FALSE(Differences(noisy, from_.Expected(from_.Version(1))).empty());
  ReceiverRig to(from_.options);
  EXPECT_EQ(to.receiver->ReloadWeights(lent()).noise, noise);
  EXPECT_THAT(Differences(to.engine.Served(), noisy), IsEmpty());
  ReloadSource clean = lent();
  clean.noise = Noise();
  to.receiver->ReloadWeights(std::move(clean));
  EXPECT_THAT(Differences(to.engine.Served(), from_.Expected(from_.Version(1))), IsEmpty());
  load({.sigma = noise.sigma, .seed = noise.seed, .own = 77});  // the lender's own is its own affair
  EXPECT_EQ(to.receiver->ReloadWeights(lent()).noise, noise);
  EXPECT_THAT(Differences(to.engine.Served(), noisy), IsEmpty());
  load({});
  EXPECT_FALSE(to.receiver->ReloadWeights(lent()).noise);
  EXPECT_THAT(Differences(to.engine.Served(), from_.engine.Served()), IsEmpty());
}

}  // namespace
}  // namespace layercast
