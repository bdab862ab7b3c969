// Sessions that go over the connections of earlier ones. What is kept may be lost meanwhile: the next session connects
// anew, and nobody sees more of that than the time it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <list>
#include <thread>

#include "src/session/link/kept_peers.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::ptrdiff_t DescriptorsNow() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

class KeptConnectionsTest : public SessionTest, public ::testing::WithParamInterface<std::string> {
 protected:
  std::unique_ptr<FetchSession> OpenKept(const std::string& endpoint, const std::string& channel = GetParam()) {
    FetchOptions options;
    options.channels = &channels_;
    options.channel = channel;
    options.kept = &kept_;
    return FetchSession::Open(std::vector{endpoint}, {"engine", ++attempt_, 0, 1}, "", {}, options,
                              receiver_failpoints_, Soon());
  }
  // Takes the newest version of that publisher, whole. Returns its step.
  std::uint64_t TakeNewest(const std::string& endpoint) {
    const auto session = OpenKept(endpoint);
    CollectingSink sink;
    session->Fetch(SomeSchedule(false), {}, sink, Soon());
    EXPECT_EQ(sink.chunks.size(), SomeSchedule(false).chunks().size());
    const std::uint64_t step = session->manifests().front().version().step;
    EXPECT_EQ(sink.chunks[1], BytesOf(SomeSchedule(false), SomeWeights(static_cast<std::uint32_t>(step)))[1]);
    return step;
  }
  std::unique_ptr<OfferService> MakeServiceAt(const std::string& endpoint) {
    OfferServiceOptions options;
    options.endpoint = endpoint;
    options.name = "publisher";
    return std::make_unique<OfferService>(options, pool_, publisher_failpoints_);
  }

  KeptPeers kept_;
  std::uint64_t attempt_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Over, KeptConnectionsTest, ::testing::Values("shm", "zmq"),
                         [](const auto& test) { return test.param; });

TEST_P(KeptConnectionsTest, ALaterSessionOpensNoneAndTakesItsOwnVersion) {
  const auto service = MakeService();
  const PublishedWeights first(*service, SomeWeights(1), "run", 1);
  EXPECT_EQ(TakeNewest(service->endpoint()), 1U);
  EXPECT_EQ(kept_.size(), 1U);
  const std::ptrdiff_t descriptors = DescriptorsNow();
  const PublishedWeights second(*service, SomeWeights(2), "run", 2);
  const std::ptrdiff_t of_second = DescriptorsNow() - descriptors;  // its memory's
  {
    const auto session = OpenKept(service->endpoint());
    EXPECT_EQ(kept_.size(), 0U) << "they are the session's now";
    EXPECT_EQ(DescriptorsNow(), descriptors + of_second);
    CollectingSink sink;
    session->Fetch(SomeSchedule(false), {}, sink, Soon());
    EXPECT_EQ(sink.chunks[1], BytesOf(SomeSchedule(false), SomeWeights(2))[1]);
  }
  EXPECT_EQ(kept_.size(), 1U);
}

TEST_P(KeptConnectionsTest, HoldNoVersion) {
  const auto service = MakeService();
  const PublishedWeights first(*service, SomeWeights(1), "run", 1);
  TakeNewest(service->endpoint());
  ASSERT_EQ(kept_.size(), 1U);
  service->Withdraw(first.version);
  EXPECT_TRUE(first.version->WaitReleased(Soon()));
}

TEST_P(KeptConnectionsTest, ToAPublisherThatWasStartedAnewAreReplaced) {
  auto service = MakeService();
  const std::string endpoint = service->endpoint();
  {
    const PublishedWeights first(*service, SomeWeights(1), "run", 1);
    EXPECT_EQ(TakeNewest(endpoint), 1U);
  }
  service.reset();
  service = MakeServiceAt(endpoint);
  const PublishedWeights second(*service, SomeWeights(2), "run", 2);
  EXPECT_EQ(TakeNewest(endpoint), 2U);
}

TEST_P(KeptConnectionsTest, AreOfTheChannelThatIsAskedFor) {
  const auto service = MakeService();
  const PublishedWeights first(*service, SomeWeights(1), "run", 1);
  TakeNewest(service->endpoint());
  const std::string other = GetParam() == "shm" ? "zmq" : "shm";
  const auto session = OpenKept(service->endpoint(), other);
  EXPECT_EQ(session->stats().channel.name, other);
  CollectingSink sink;
  session->Fetch(SomeSchedule(false), {}, sink, Soon());
  EXPECT_EQ(sink.chunks[1], BytesOf(SomeSchedule(false), SomeWeights(1))[1]);
}

TEST_P(KeptConnectionsTest, AreNotKeptOfASessionThatFailed) {
  const auto service = MakeService();
  const PublishedWeights first(*service, SomeWeights(1), "run", 1);
  receiver_failpoints_ = FailPoints("receive.chunk=corrupt@1");
  CollectingSink sink;
  EXPECT_THAT([&] { OpenKept(service->endpoint())->Fetch(SomeSchedule(false), {}, sink, Soon()); },
              ThrowsMessage<Error>(HasSubstr("digest")));
  EXPECT_EQ(kept_.size(), 0U);
}

TEST_P(KeptConnectionsTest, AreOfAFewPublishersAtMostAndGoWhenTold) {
  std::list<std::unique_ptr<OfferService>> services;
  std::list<PublishedWeights> published;
  for (std::size_t i = 0; i <= KeptPeers::kMost; ++i) {
    services.push_back(MakeService());
    published.emplace_back(*services.back(), SomeWeights(1), "run", 1);
    TakeNewest(services.back()->endpoint());
  }
  EXPECT_EQ(kept_.size(), KeptPeers::kMost);
  kept_.Clear();
  EXPECT_EQ(kept_.size(), 0U);
  EXPECT_EQ(TakeNewest(services.back()->endpoint()), 1U);
}

// The receiver's own thread finds out, whether or not another session comes.
TEST_P(KeptConnectionsTest, ToAPublisherThatHasEndedGo) {
  auto service = MakeService();
  {
    const PublishedWeights first(*service, SomeWeights(1), "run", 1);
    TakeNewest(service->endpoint());
  }
  service.reset();
  const Deadline soon = Soon();
  while (kept_.size() > 0 && !soon.Passed()) std::this_thread::yield();
  EXPECT_EQ(kept_.size(), 0U);
}

}  // namespace
}  // namespace layercast::testing
