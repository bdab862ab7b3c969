// Magnitudes that a receiver asks for come with the chunks that need them, not before the first: what a publisher
// sends, and what a receiver waits for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/support/session/raw_version.h"

namespace layercast::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A receiver of three chunks that needs the magnitudes of b's rows before the third.
class LateAmaxTest : public SessionTest {
 protected:
  void Begin(std::chrono::milliseconds peer_timeout = std::chrono::seconds(5)) {
    const std::vector<AmaxRequest> requests = {{1, kKeptRows, 2}};
    fetched_ = FetchInBackground(publisher_.link.endpoint(), channels_, schedule_, requests, peer_timeout);
    publisher_.Welcome();
    publisher_.link.ReceiveBytes();  // subscribe
    publisher_.Send(wire::Subscribed{publisher_.offer.id, {digests_[0]}, {}});
  }

  const Weights weights_ = SomeWeights();
  const Schedule schedule_ = SomeSchedule(false);
  const std::vector<Digest> digests_ = DigestsOf(schedule_, weights_);
  const wire::AxisAmax amax_{1, std::vector<float>(16, 2.0F)};
  RawVersion publisher_{weights_};
  std::future<Fetched> fetched_;
};

TEST_F(LateAmaxTest, MayComeWithAnyDigests) {
  Begin();
  publisher_.Send(wire::MoreDigests{{digests_[1]}, {}});
  publisher_.Send(wire::MoreDigests{{digests_[2]}, {amax_}});
  const Fetched fetched = fetched_.get();
  EXPECT_EQ(fetched.error, "");
  EXPECT_EQ(fetched.sink.axis_amax.at(1), amax_.values);
  EXPECT_THAT(fetched.sink.chunk_order, ElementsAre(0, 1, 2));
}

TEST_F(LateAmaxTest, NoChunkThatNeedsThemIsHandedOnBefore) {
  Begin(std::chrono::milliseconds(2000));  // long for a publisher that speaks, also on a busy machine
  publisher_.Send(wire::MoreDigests{{digests_[1], digests_[2]}, {}});
  const Fetched fetched = fetched_.get();
  EXPECT_THAT(fetched.sink.chunk_order, ElementsAre(0, 1));
  EXPECT_EQ(fetched.code, ErrorCode::kUnavailable);
  EXPECT_THAT(fetched.error, HasSubstr("the magnitudes of a tensor of run@3"));
}

TEST_F(LateAmaxTest, ThatComeTwiceAreRefused) {
  Begin();
  publisher_.Send(wire::MoreDigests{{digests_[1]}, {amax_}});
  publisher_.Send(wire::MoreDigests{{digests_[2]}, {amax_}});
  EXPECT_THAT(fetched_.get().error, HasSubstr("sent the magnitudes of tensor 1 twice"));
}

TEST_F(LateAmaxTest, ThatAreNoneAreRefused) {
  Begin();
  wire::AxisAmax negative = amax_;
  negative.values[3] = -1;
  publisher_.Send(wire::MoreDigests{{digests_[1]}, {negative}});
  EXPECT_THAT(fetched_.get().error,
              HasSubstr("sent -1.000000 as a magnitude of tensor 1, expected a finite one of at least 0"));
}

TEST_F(LateAmaxTest, ThatNobodyAskedForAreRefused) {
  Begin();
  publisher_.Send(wire::MoreDigests{{digests_[1]}, {{2, {1.0F}}}});
  EXPECT_THAT(fetched_.get().error, HasSubstr("sent 1 magnitudes of tensor 2, expected 0"));
}

// Ten chunks of 8 MiB, more than are digested between two messages, and a small one.
class LateAmaxOfABigVersionTest : public SessionTest {
 protected:
  static constexpr std::uint64_t kChunk = 8U << 20;
  static constexpr std::uint32_t kChunks = 10;

  LateAmaxOfABigVersionTest() {
    weights_.AddRandom({"big", DType::kBF16, {kChunks, kChunk / 2}}, 1);
    weights_.AddRandom({"last", DType::kBF16, {4, 8}}, 2);
    for (std::uint32_t i = 0; i <= kChunks; ++i) {
      const bool last = i == kChunks;
      schedule_.Add(std::vector<Region>{{.tensor = last ? 1U : 0U,
                                         .offset = last ? 0 : i * kChunk,
                                         .row_bytes = last ? 64 : kChunk,
                                         .rows = 1,
                                         .stride = 0}});
    }
  }
  wire::Subscribed Subscribe(RawReceiver& receiver) const {
    receiver.Send(wire::Hello{});
    receiver.ReceiveBytes();
    const std::vector<AmaxRequest> requests = {{0, kKeptRows, 0}, {1, kKeptRows, kChunks}};
    receiver.Send(wire::Subscribe{schedule_.digest(), schedule_.Encode(), requests});
    return std::get<wire::Subscribed>(receiver.Receive());
  }
  std::vector<float> Slowly(std::size_t tensor) const {
    std::vector<float> rows;
    WorkerPool one(1);
    const TensorSpec& spec = weights_.spec(tensor);
    for (std::int64_t row = 0; row < spec.shape[0]; ++row) {
      const TensorSpec alone{"row", spec.dtype, {1, spec.shape[1]}};
      const std::byte* at = weights_.bytes(tensor).data() + row * NumBytes(spec.dtype, alone.shape);
      rows.push_back(AmaxOver(alone, at, kKeptRows, one).at(0));
    }
    return rows;
  }

  Weights weights_;
  Schedule schedule_;
};

TEST_F(LateAmaxOfABigVersionTest, ComeWithTheDigestsOfTheirChunks) {
  const auto service = MakeService();
  const PublishedWeights published(*service, weights_, "run", 3);
  RawReceiver receiver(service->endpoint());
  const wire::Subscribed subscribed = Subscribe(receiver);
  EXPECT_THAT(subscribed.amax, ElementsAre(wire::AxisAmax{0, Slowly(0)}));
  std::size_t digests = subscribed.chunk_digests.size();
  while (digests <= kChunks) {
    const auto more = std::get<wire::MoreDigests>(receiver.Receive());
    digests += more.chunk_digests.size();
    if (digests <= kChunks) {
      EXPECT_THAT(more.amax, ::testing::IsEmpty());
    } else {
      EXPECT_THAT(more.amax, ElementsAre(wire::AxisAmax{1, Slowly(1)}));
    }
  }
}

}  // namespace
}  // namespace layercast::testing
