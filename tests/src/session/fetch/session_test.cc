// Snapshots: one rank takes one version, over every channel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"
#include "tests/support/channels_here.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class SnapshotTest : public SessionTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(SnapshotTest, ArrivesChunkByChunkInTheSchedulesOrder) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 3);
  const auto session = Open(*service, GetParam());
  EXPECT_EQ(session->manifests().front().version(), published.version->manifest().version());
  EXPECT_EQ(session->mode(), PublishMode::kSnapshot);
  EXPECT_EQ(session->stats().channel.name, GetParam());

  const Schedule schedule = SomeSchedule(false);
  CollectingSink sink;
  session->Fetch(schedule, std::vector<AmaxRequest>{{1, 0b01}}, sink, Soon());
  const auto expected = BytesOf(schedule, weights);
  EXPECT_THAT(sink.chunk_order, ElementsAre(0, 1, 2));
  for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.chunks[i], expected[i]) << i;
  EXPECT_EQ(session->stats().bytes, schedule.total_bytes());
  EXPECT_EQ(sink.axis_amax[1].size(), 16U);
}

TEST_P(SnapshotTest, MagnitudesOfAxesThatATensorDoesNotHaveAreRefused) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  for (const AmaxRequest& request : {AmaxRequest{1, 0b11}, AmaxRequest{1, 0b100}, AmaxRequest{0, 0b1}}) {
    CollectingSink sink;
    const std::vector<AmaxRequest> requests = {request};
    EXPECT_THAT([&] { Open(*service, GetParam())->Fetch(SomeSchedule(false), requests, sink, Soon()); },
                ThrowsMessage<Error>(HasSubstr("expected its first dimensions")));
  }
}

TEST_P(SnapshotTest, MagnitudesComeOfAnotherShapeOfAsManyElements) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  const Shape shape = SomeWeights().spec(1).shape;
  const auto fetch = [&](const Shape& read_as) {
    CollectingSink sink;
    const std::vector<AmaxRequest> requests = {{1, 0b01, 0, read_as}};
    Open(*service, GetParam())->Fetch(SomeSchedule(false), requests, sink, Soon());
    return sink.axis_amax[1];
  };
  const std::vector<float> rows = fetch({});
  const std::vector<float> halves = fetch({2 * shape[0], shape[1] / 2});
  ASSERT_EQ(halves.size(), 2 * rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(std::max(halves[2 * i], halves[2 * i + 1]), rows[i]);
  for (const Shape& other : {Shape{shape[0], shape[1] + 1}, Shape{-1, -NumElements(shape)}, Shape{0, 5}}) {
    EXPECT_THAT([&] { fetch(other); }, ThrowsMessage<Error>(HasSubstr("expected a shape of as many elements, got")));
  }
}

TEST_P(SnapshotTest, ACorruptedChunkIsFoundAndNamed) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  const auto session = Open(*service, GetParam());
  receiver_failpoints_ = FailPoints("receive.chunk=corrupt@1");
  CollectingSink sink;
  try {
    session->Fetch(SomeSchedule(false), {}, sink, Soon());
    FAIL() << "the second chunk was corrupted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("chunk 2 of 3"), HasSubstr("'c'"), HasSubstr("digest expected")));
  }
  EXPECT_EQ(sink.chunks.size(), 1U);
  EXPECT_GT(session->stats().bytes, 0U);
}

TEST_P(SnapshotTest, AChunkThatIsCorruptedOnItsWayIsFoundAndTheNextTryTakesTheVersion) {
  publisher_failpoints_ = FailPoints("send.chunk=corrupt@1");  // before the publisher's threads read it
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 3);
  const Schedule schedule = SomeSchedule(false);
  const auto expected = BytesOf(schedule, weights);
  CollectingSink sink;
  // The digest that was announced is that of the version: it is the data that changed.
  EXPECT_THAT([&] { Open(*service, GetParam())->Fetch(schedule, {}, sink, Soon()); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("chunk 2 of 3"), HasSubstr("digest expected " + DigestOf(expected[1]).ToHex()))));
  CollectingSink again;
  Open(*service, GetParam())->Fetch(schedule, {}, again, Soon());
  for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(again.chunks[i], expected[i]) << i;
}

TEST_P(SnapshotTest, AScheduleIsSentOnceAndKnownByItsDigestAfterwards) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 3);
  const Schedule schedule = SomeSchedule(false);
  for (int i = 0; i < 3; ++i) {
    CollectingSink sink;
    Open(*service, GetParam())->Fetch(schedule, {}, sink, Soon());
    EXPECT_EQ(sink.chunks[2], BytesOf(schedule, weights)[2]);
  }
}

TEST_P(SnapshotTest, SeveralEnginesAndALateJoinerTakeTheSameVersion) {
  const Weights old_weights = SomeWeights(1);
  const Weights new_weights = SomeWeights(50);
  const auto service = MakeService();
  const PublishedWeights first(*service, old_weights, "run", 1);
  const auto early = Open(*service, GetParam());
  const PublishedWeights second(*service, new_weights, "run", 2);
  const auto newest = Open(*service, GetParam());
  const auto late = Open(*service, GetParam(), "run", 1);
  const Schedule schedule = SomeSchedule(false);
  for (const auto& [session, weights] : {std::pair(early.get(), &old_weights), std::pair(newest.get(), &new_weights),
                                         std::pair(late.get(), &old_weights)}) {
    CollectingSink sink;
    session->Fetch(schedule, {}, sink, Soon());
    EXPECT_EQ(sink.chunks[0], BytesOf(schedule, *weights)[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(OverEveryChannel, SnapshotTest, ::testing::ValuesIn(ChannelsHere()),
                         [](const auto& channel) { return channel.param; });

class OfferTest : public SessionTest {};

TEST_F(OfferTest, AnUnknownVersionIsRefusedWithTheOnesThereAre) {
  const auto service = MakeService();
  EXPECT_THAT([&] { Open(*service); }, ThrowsMessage<Error>(HasSubstr("no version is offered here")));
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  EXPECT_THAT([&] { Open(*service, "", "run", 4); },
              ThrowsMessage<Error>(AllOf(HasSubstr("run@4"), HasSubstr("offered: run@3"))));
  EXPECT_THAT([&] { Open(*service, "", "other"); }, ThrowsMessage<Error>(HasSubstr("offered: run@3")));
}

TEST_F(OfferTest, AForcedChannelThatIsNotThereIsAnErrorAndNoFallback) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  EXPECT_THAT([&] { Open(*service, "carrier_pigeon"); }, ThrowsMessage<Error>(HasSubstr("carrier_pigeon")));
}

TEST_F(OfferTest, AVersionIsReleasedWhenItIsWithdrawnAndItsLastReaderHasLeft) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  const Deadline now = Deadline::After(std::chrono::milliseconds(0));
  auto session = Open(*service);
  EXPECT_EQ(published.version->readers(), 1);
  service->Withdraw(published.version);
  EXPECT_FALSE(published.version->WaitReleased(now));
  CollectingSink sink;
  session->Fetch(SomeSchedule(false), {}, sink, Soon());  // the ones under way go on
  EXPECT_THROW(Open(*service), Error);                    // no new one begins
  session.reset();
  EXPECT_TRUE(published.version->WaitReleased(Soon()));
  service->Forget(published.version);
}

TEST_F(OfferTest, ARegionOutsideItsTensorIsRefusedBeforeAnyByteMoves) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  Schedule schedule;
  schedule.Add(std::vector<Region>{{.tensor = 0, .offset = 4, .row_bytes = 10, .rows = 1, .stride = 0}});
  CollectingSink sink;
  EXPECT_THAT([&] { Open(*service)->Fetch(schedule, {}, sink, Soon()); },
              ThrowsMessage<Error>(HasSubstr("leaves the tensor")));
  EXPECT_TRUE(sink.chunks.empty());
}

TEST_F(OfferTest, APublisherThatIsNotThereIsNoticed) {
  std::string endpoint;
  {
    const auto service = MakeService();
    endpoint = service->endpoint();
  }
  FetchOptions options;
  options.channels = &channels_;
  options.peer_timeout = std::chrono::milliseconds(50);
  EXPECT_THAT(
      [&] { FetchSession::Open(std::vector{endpoint}, {}, "", std::nullopt, options, receiver_failpoints_, Soon()); },
      ThrowsMessage<Error>(AllOf(HasSubstr(endpoint), HasSubstr("silent"), HasSubstr("opening a session"))));
}

TEST_F(OfferTest, APublisherThatGoesAwayInTheMiddleIsNoticed) {
  auto service = MakeService();
  auto published = std::make_unique<PublishedWeights>(*service, SomeWeights(), "run", 3);
  const auto session = Open(*service);
  service->Stop();
  published.reset();
  service.reset();
  CollectingSink sink;
  EXPECT_THAT([&] { session->Fetch(SomeSchedule(false), {}, sink, Soon()); },
              ThrowsMessage<Error>(HasSubstr("the publisher has ended")));
}

}  // namespace
}  // namespace layercast::testing
