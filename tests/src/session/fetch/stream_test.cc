// Streams: a source that is walked once for all ranks of an engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <limits>

#include "layercast/error.h"
#include "tests/support/channels_here.h"
#include "tests/support/session/other_transport.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/watched_walk.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StreamTest : public SessionTest, public ::testing::WithParamInterface<std::string> {
 protected:
  std::shared_ptr<OfferedVersion> OfferStream(OfferService& service, const Weights& weights, WalkFunction walk,
                                              bool layer_order = false) {
    auto version = std::make_shared<OfferedVersion>(Manifest::OfSpecs("run", 7, weights.ToManifest().specs()),
                                                    std::move(walk), layer_order);
    service.Offer(version);
    return version;
  }
  // One rank of two, on a thread of its own; the error it got, or none.
  std::future<std::string> Rank(const OfferService& service, int rank, const Schedule& schedule, FetchSink& sink) {
    return std::async(std::launch::async, [this, &service, rank, &schedule, &sink]() -> std::string {
      try {
        const auto session = Open(service, GetParam(), "", std::nullopt, {"engine", 1, rank, 2});
        session->Fetch(schedule, std::vector<AmaxRequest>{{1, kKeptRows}}, sink, Soon());
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    });
  }
};

TEST_P(StreamTest, IsWalkedOnceForAllRanksOfAnEngine) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  std::atomic<int> walks{0};
  const std::vector<std::size_t> order = {2, 0, 1};
  const auto version = OfferStream(*service, weights, [&](std::span<const std::string>) {
    ++walks;
    return weights.Stream(order);
  });
  const Schedule schedule = SomeSchedule(true);
  CollectingSink sinks[2];
  auto first = Rank(*service, 0, schedule, sinks[0]);
  auto second = Rank(*service, 1, schedule, sinks[1]);
  EXPECT_EQ(first.get(), "");
  EXPECT_EQ(second.get(), "");
  EXPECT_EQ(walks.load(), 1);
  const auto expected = BytesOf(schedule, weights);
  for (CollectingSink& sink : sinks) {
    EXPECT_THAT(sink.order, ElementsAre(2, 0, 1));
    for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.chunks[i], expected[i]) << i;
    EXPECT_EQ(sink.axis_amax[1].size(), 16U);
    EXPECT_EQ(sink.digests[2], DigestOf(weights.bytes(2)));
  }
}

// Says how many tensors have begun to come, while they do.
class CountingSink final : public FetchSink {
 public:
  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override {
    collected.OnTensor(tensor, amax, digest);
    ++tensors;
  }
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override { collected.OnAxisAmax(tensor, amax); }
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override { collected.OnChunk(chunk, regions); }
  CollectingSink collected;
  std::atomic<std::size_t> tensors{0};
};

TEST_P(StreamTest, AWindowOfOneTensorPushesBackAndStillDeliversAll) {
  const Weights weights = SomeWeights();
  const auto service = MakeService(/*window_bytes=*/1);
  CountingSink sinks[2];
  // One lies in the window, and the next is in the source's hands: the one before has been taken by all.
  std::atomic<bool> pushed_back{true};
  const auto look = [&](std::size_t yielded) {
    for (const CountingSink& sink : sinks) {
      if (yielded >= 2 && sink.tensors < yielded - 1) pushed_back = false;
    }
  };
  OfferStream(*service, weights,
              [&](std::span<const std::string>) { return std::make_unique<WatchedWalk>(weights.Stream(), look); });
  const Schedule schedule = SomeSchedule(true);
  auto first = Rank(*service, 0, schedule, sinks[0]);
  auto second = Rank(*service, 1, schedule, sinks[1]);
  EXPECT_EQ(first.get() + second.get(), "");
  EXPECT_TRUE(pushed_back);
  EXPECT_EQ(sinks[1].collected.chunks.size(), 4U);
}

TEST_P(StreamTest, LayerOrderIsThatOfTheReceiversSchedule) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  std::promise<std::vector<std::string>> asked;  // on the walk's thread
  OfferStream(
      *service, weights,
      [&](std::span<const std::string> order) {
        asked.set_value({order.begin(), order.end()});
        return weights.Stream(std::vector<std::size_t>{2, 1, 0});
      },
      true);
  Schedule schedule;
  schedule.Add(std::vector<Region>{{.tensor = 2, .offset = 0, .row_bytes = 80, .rows = 1, .stride = 0}});
  schedule.Add(std::vector<Region>{{.tensor = 1, .offset = 0, .row_bytes = 48, .rows = 1, .stride = 0}});
  CollectingSink sinks[2];
  auto first = Rank(*service, 0, schedule, sinks[0]);
  auto second = Rank(*service, 1, schedule, sinks[1]);
  EXPECT_EQ(first.get() + second.get(), "");
  EXPECT_THAT(asked.get_future().get(), ElementsAre("c", "b", "a"));  // what no rank keeps comes last
}

TEST_P(StreamTest, NaNIsRefusedWithItsNameAndIndexOnEveryRank) {
  Weights weights = SomeWeights();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(weights.bytes(1).data() + (3 * 12 + 4) * sizeof(float), &nan, sizeof(nan));
  const auto service = MakeService();
  OfferStream(*service, weights, [&](std::span<const std::string>) { return weights.Stream(); });
  const Schedule schedule = SomeSchedule(true);
  CollectingSink sinks[2];
  auto first = Rank(*service, 0, schedule, sinks[0]);
  auto second = Rank(*service, 1, schedule, sinks[1]);
  for (const std::string& error : {first.get(), second.get()}) {
    EXPECT_THAT(error, AllOf(HasSubstr("'b'"), HasSubstr("[3, 4]"), HasSubstr("NaN")));
  }
}

TEST_P(StreamTest, ASourceThatThrowsFailsItsReceiversAndNothingElse) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  std::atomic<int> walks{0};
  OfferStream(*service, weights, [&](std::span<const std::string>) -> std::unique_ptr<WeightsIterator> {
    ++walks;
    if (walks == 1) throw std::runtime_error("the gather failed");
    if (walks == 2) throw 7;
    return weights.Stream();
  });
  const Schedule schedule = SomeSchedule(true);
  const std::vector<::testing::Matcher<std::string>> expected = {HasSubstr("the gather failed"),
                                                                 HasSubstr("the source failed"), ""};
  for (const auto& error_of_walk : expected) {
    CollectingSink sinks[2];
    auto first = Rank(*service, 0, schedule, sinks[0]);
    auto second = Rank(*service, 1, schedule, sinks[1]);
    for (const std::string& error : {first.get(), second.get()}) EXPECT_THAT(error, error_of_walk);
  }
}

TEST_P(StreamTest, ACorruptedChunkIsRefusedBeforeItIsHandedOn) {
  const Weights weights = SomeWeights();
  publisher_failpoints_ = FailPoints("send.chunk=corrupt@3");  // before the publisher's threads read it
  const auto service = MakeService();
  OfferStream(*service, weights, [&](std::span<const std::string>) { return weights.Stream(); });
  const Schedule schedule = SomeSchedule(true);
  CollectingSink sinks[2];
  auto first = Rank(*service, 0, schedule, sinks[0]);
  auto second = Rank(*service, 1, schedule, sinks[1]);
  EXPECT_THAT(first.get() + second.get(), HasSubstr("digest expected"));
}

TEST_P(StreamTest, ATensorThatIsYieldedTwiceIsRefusedThoughNobodyKeepsIt) {
  const Weights weights = SomeWeights();
  const std::vector<std::size_t> order = {0, 1, 0, 2};
  const auto service = MakeService();
  OfferStream(*service, weights, [&](std::span<const std::string>) { return weights.Stream(order); });
  Schedule schedule;
  schedule.Add(std::vector<Region>{{.tensor = 2, .offset = 0, .row_bytes = 80, .rows = 1, .stride = 0}});
  CollectingSink sinks[2];
  auto first = Rank(*service, 0, schedule, sinks[0]);
  auto second = Rank(*service, 1, schedule, sinks[1]);
  for (const std::string& error : {first.get(), second.get()}) {
    EXPECT_THAT(error, AllOf(HasSubstr("'a'"), HasSubstr("twice")));
  }
}

TEST_P(StreamTest, AYieldThatWasNotDeclaredIsRefused) {
  const Weights weights = SomeWeights();
  Weights other;
  other.AddRandom({"a", DType::kBF16, {5}}, 1);
  other.AddRandom({"surprise", DType::kBF16, {5}}, 1);
  const auto service = MakeService();
  OfferStream(*service, weights, [&](std::span<const std::string>) { return other.Stream(); });
  const Schedule schedule = SomeSchedule(true);
  CollectingSink sinks[2];
  auto first = Rank(*service, 0, schedule, sinks[0]);
  auto second = Rank(*service, 1, schedule, sinks[1]);
  EXPECT_THAT(first.get(), HasSubstr("'surprise'"));
  EXPECT_THAT(second.get(), HasSubstr("'surprise'"));
}

// Brings nothing before the publisher has walked to its end, and then not at the first look.
class LateEnd final : public FetchingEnd {
 public:
  LateEnd(std::unique_ptr<FetchingEnd> honest, std::shared_future<void> walked)
      : honest_(std::move(honest)), walked_(std::move(walked)) {}
  bool attaches() const override { return honest_->attaches(); }
  void Submit(const ChunkRequest& request) override { honest_->Submit(request); }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    if (late_) return honest_->Poll(deadline);
    late_ = walked_.wait_until(deadline.at()) == std::future_status::ready;
    never_.wait_until(deadline.at());
    return std::nullopt;
  }
  void Close() noexcept override { honest_->Close(); }

 private:
  const std::unique_ptr<FetchingEnd> honest_;
  const std::shared_future<void> walked_;
  std::promise<void> promise_;
  const std::future<void> never_ = promise_.get_future();
  bool late_ = false;
};

class LateTransport final : public OtherTransport {
 public:
  explicit LateTransport(std::shared_future<void> walked) : walked_(std::move(walked)) {}
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    std::unique_ptr<FetchingEnd> end = honest_->Connect(address, deadline);
    if (connections_++ == 0) return end;  // the probe's
    return std::make_unique<LateEnd>(std::move(end), walked_);
  }

 private:
  const std::shared_future<void> walked_;
  mutable int connections_ = 0;
};

// Tells when it was asked for more than it has.
class ToldWalk final : public WeightsIterator {
 public:
  ToldWalk(std::unique_ptr<WeightsIterator> weights, std::promise<void>& walked)
      : weights_(std::move(weights)), walked_(walked) {}
  std::optional<NamedTensor> Next() override {
    std::optional<NamedTensor> next = weights_->Next();
    if (!next) walked_.set_value();
    return next;
  }

 private:
  const std::unique_ptr<WeightsIterator> weights_;
  std::promise<void>& walked_;
};

TEST_F(SessionTest, AStreamsPublisherMayBeAheadOfASlowChannel) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  std::promise<void> walked;
  service->Offer(std::make_shared<OfferedVersion>(
      Manifest::OfSpecs("run", 7, weights.ToManifest().specs()),
      [&](std::span<const std::string>) { return std::make_unique<ToldWalk>(weights.Stream(), walked); }, false));
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<LateTransport>(walked.get_future().share()));
  ChannelChooser channels(std::move(transports));
  FetchOptions options;
  options.channels = &channels;
  const auto session = FetchSession::Open(std::vector{service->endpoint()}, {"engine", 1, 0, 1}, "", {}, options,
                                          receiver_failpoints_, Soon());
  CollectingSink sink;
  const Schedule schedule = SomeSchedule(true);
  session->Fetch(schedule, {}, sink, Soon());
  EXPECT_THAT(sink.order, ElementsAre(0, 1, 2));
  const auto expected = BytesOf(schedule, weights);
  for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.chunks[i], expected[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(OverEveryChannel, StreamTest, ::testing::ValuesIn(ChannelsHere()),
                         [](const auto& channel) { return channel.param; });

}  // namespace
}  // namespace layercast::testing
