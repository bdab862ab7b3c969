// Each sentence about a publisher, an engine and the channels to them: what brings it up, and that it is not there
// otherwise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/doctor/advice.h"

namespace layercast::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPublisher = "tcp://trainer:7700";

std::vector<std::string> NamesIn(const std::vector<Advice>& advice) {
  std::vector<std::string> names;
  for (const Advice& each : advice) names.push_back(each.name);
  return names;
}

ChannelTrial Usable(const std::string& name, double gb_per_s) {
  return {.name = name, .usable = true, .attaches = name == "shm", .gb_per_s = gb_per_s};
}

ChannelTrial Unusable(const std::string& name, const std::string& reason) { return {.name = name, .reason = reason}; }

PublisherLook Seen(bool same_host, std::vector<ChannelTrial> trials) {
  return {.endpoint = kPublisher,
          .offers = true,
          .bytes = 16'000'000'000,
          .probe = PublisherProbe{.publisher = "trainer", .same_host = same_host, .trials = std::move(trials)}};
}

TEST(PublisherAdvice, OneThatIsReachedByItsFastestChannelIsToldNothing) {
  EXPECT_THAT(NamesIn(AdviceOn(Seen(true, {Usable("shm", 9), Usable("zmq", 2)}))), IsEmpty());
  EXPECT_THAT(NamesIn(AdviceOn(Seen(false, {Unusable("shm", "not on the same host"), Usable("zmq", 2)}))), IsEmpty());
}

TEST(PublisherAdvice, AnotherUserOnThisHostCannotHaveSharedMemory) {
  const auto advice = AdviceOn(Seen(true, {Unusable("shm", "run by another user"), Usable("zmq", 2)}));
  ASSERT_THAT(NamesIn(advice), ElementsAre("shm_not_possible"));
  EXPECT_THAT(advice.front().text, HasSubstr("run by another user"));
  EXPECT_THAT(advice.front().command, HasSubstr("User="));
}

TEST(PublisherAdvice, AnotherNetworkNamespaceOnThisHostCannotHaveSharedMemory) {
  const auto advice = AdviceOn(Seen(true, {Unusable("shm", "in another network namespace"), Usable("zmq", 2)}));
  ASSERT_THAT(NamesIn(advice), ElementsAre("shm_not_possible"));
  EXPECT_THAT(advice.front().command, HasSubstr("--network container:"));
}

TEST(PublisherAdvice, AFasterChannelThatIsTakenByNameAloneIsTold) {
  ChannelTrial ucx = Usable("ucx", 40);
  ucx.by_name = true;
  const auto advice = AdviceOn(Seen(false, {Unusable("shm", "not on the same host"), ucx, Usable("zmq", 2)}));
  ASSERT_THAT(NamesIn(advice), ElementsAre("channel_by_name"));
  EXPECT_THAT(advice.front().command, HasSubstr("--channel ucx --publisher tcp://trainer:7700"));
  ucx.gb_per_s = 2.1;
  EXPECT_THAT(NamesIn(AdviceOn(Seen(false, {ucx, Usable("zmq", 2)}))), IsEmpty());
}

TEST(PublisherAdvice, AChannelThatDoesNotWorkIsTold) {
  ChannelTrial broken = Unusable("ucx", "the peer hung up");
  broken.failure = ErrorCode::kUnavailable;
  const auto advice = AdviceOn(Seen(false, {broken, Usable("zmq", 2)}));
  ASSERT_THAT(NamesIn(advice), ElementsAre("channel_fails"));
  EXPECT_THAT(advice.front().text, HasSubstr("the peer hung up"));
  EXPECT_FALSE(advice.front().fails);
}

TEST(PublisherAdvice, WithoutAnyChannelASyncFails) {
  const auto advice = AdviceOn(Seen(false, {Unusable("zmq", "the publisher does not offer it")}));
  ASSERT_THAT(NamesIn(advice), ElementsAre("no_channel"));
  EXPECT_TRUE(advice.front().fails);
}

TEST(PublisherAdvice, WithoutAVersionASyncFails) {
  const auto advice = AdviceOn(PublisherLook{.endpoint = kPublisher});
  ASSERT_THAT(NamesIn(advice), ElementsAre("no_version"));
  EXPECT_TRUE(advice.front().fails);
}

TEST(PublisherAdvice, KeysAndReachAreToldApart) {
  const auto failed = [](ErrorCode code) {
    return AdviceOn(PublisherLook{.endpoint = kPublisher, .error = Error(code, "publisher tcp://trainer:7700: no")});
  };
  const auto keys = failed(ErrorCode::kPermissionDenied);
  ASSERT_THAT(NamesIn(keys), ElementsAre("publisher_keys"));
  EXPECT_THAT(keys.front().command, HasSubstr("layercast keygen MINE --server"));
  const auto gone = failed(ErrorCode::kUnavailable);
  ASSERT_THAT(NamesIn(gone), ElementsAre("publisher_unreachable"));
  EXPECT_THAT(gone.front().command, HasSubstr("layercast status --publisher tcp://trainer:7700"));
  EXPECT_THAT(NamesIn(failed(ErrorCode::kCorrupt)), ElementsAre("publisher"));
  EXPECT_TRUE(keys.front().fails && gone.front().fails);
}

TEST(PublisherAdvice, TheEstimateIsOfTheChannelThatWouldBeChosen) {
  EXPECT_EQ(EstimateSeconds(Seen(false, {Usable("zmq", 2), Usable("other", 1)})), 8);
  EXPECT_EQ(EstimateSeconds(Seen(false, {Unusable("zmq", "no")})), std::nullopt);
  EXPECT_EQ(EstimateSeconds(PublisherLook{.endpoint = kPublisher}), std::nullopt);
}

TEST(OwnChannelAdvice, WhatWorksIsNotTold) {
  EXPECT_THAT(NamesIn(AdviceOnOwnChannels({Usable("shm", 9), Unusable("nccl", "no CUDA device is here")})), IsEmpty());
}

TEST(OwnChannelAdvice, WhereNoneWorksASyncFails) {
  ChannelTrial broken = Unusable("shm", "no descriptors");
  broken.failure = ErrorCode::kUnavailable;
  const auto advice = AdviceOnOwnChannels({broken});
  ASSERT_THAT(NamesIn(advice), ElementsAre("channel_fails", "no_channel"));
  EXPECT_TRUE(advice.back().fails);
}

EngineLook Serving() { return {.endpoint = "tcp://engine:7800", .state = "serving"}; }

TEST(EngineAdvice, OneThatServesIsToldNothing) { EXPECT_THAT(NamesIn(AdviceOn(Serving())), IsEmpty()); }

TEST(EngineAdvice, OneThatLoadsRefusesASync) {
  EngineLook engine = Serving();
  engine.state = "loading";
  const auto advice = AdviceOn(engine);
  ASSERT_THAT(NamesIn(advice), ElementsAre("loading"));
  EXPECT_TRUE(advice.front().fails);
}

TEST(EngineAdvice, ATornOneIsToldHowItIsMended) {
  EngineLook engine = Serving();
  engine.state = "torn";
  const auto advice = AdviceOn(engine);
  ASSERT_THAT(NamesIn(advice), ElementsAre("torn"));
  EXPECT_EQ(advice.front().command, "layercast reload --engine tcp://engine:7800");
  EXPECT_FALSE(advice.front().fails);
}

TEST(EngineAdvice, ItsLastErrorAndItsSlowChannelAreTold) {
  EngineLook engine = Serving();
  engine.last_error = "digest\x1b[2J";
  engine.warning = "shm: 0.3 GB/s, far under the 9 that were measured";
  const auto advice = AdviceOn(engine);
  ASSERT_THAT(NamesIn(advice), ElementsAre("last_error", "slow_channel"));
  EXPECT_THAT(advice.front().text, HasSubstr("digest\\x1b[2J"));
}

TEST(EngineAdvice, KeysAndReachAreToldApart) {
  const auto failed = [](ErrorCode code) {
    return NamesIn(AdviceOn(EngineLook{.endpoint = "tcp://engine:7800", .error = Error(code, "no")}));
  };
  EXPECT_THAT(failed(ErrorCode::kPermissionDenied), ElementsAre("engine_keys"));
  EXPECT_THAT(failed(ErrorCode::kDeadlineExceeded), ElementsAre("engine_unreachable"));
}

}  // namespace
}  // namespace layercast::cli
