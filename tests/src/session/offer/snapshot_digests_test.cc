// The digests of a snapshot's chunks come while its chunks do: what a publisher sends, and what a receiver takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "src/base/digest/digest.h"
#include "src/session/chunks/chunk_digests.h"
#include "src/session/chunks/chunk_memory.h"
#include "tests/support/session/copying_shm.h"
#include "tests/support/session/raw_version.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DigestOfViews, IsThatOfThePackedBytesHoweverShortTheRowsAre) {
  WorkerPool pool(3);
  std::vector<std::byte> source(1'900'000);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const std::size_t row_bytes : {1U, 2U, 3U, 8U, 255U, 256U, 300U}) {
    const RegionView view{source.data() + 1, row_bytes, (source.size() - 1) / (2 * row_bytes), 2 * row_bytes};
    std::vector<std::byte> packed;
    for (std::size_t row = 0; row < view.rows; ++row)
      packed.insert(packed.end(), view.row(row), view.row(row) + row_bytes);
    EXPECT_EQ(DigestOfViews({&view, 1}), DigestOf(packed)) << row_bytes;
    EXPECT_EQ(DigestOfViews({&view, 1}, pool), DigestOf(packed)) << row_bytes;
  }
}

// A receiver of three chunks, and a publisher that has told it the digest of the first.
class DigestsTest : public SessionTest {
 protected:
  void Begin(std::chrono::milliseconds peer_timeout = std::chrono::seconds(5)) {
    fetched_ = FetchInBackground(publisher_.link.endpoint(), channels_, schedule_, {}, peer_timeout);
    publisher_.Welcome();
    publisher_.link.ReceiveBytes();  // subscribe
    publisher_.Send(wire::Subscribed{publisher_.offer.id, {digests_[0]}, {}});
  }
  void SendDigests(std::vector<Digest> digests) { publisher_.Send(wire::MoreDigests{std::move(digests)}); }

  const Weights weights_ = SomeWeights();
  const Schedule schedule_ = SomeSchedule(false);
  const std::vector<Digest> digests_ = DigestsOf(schedule_, weights_);
  RawVersion publisher_{weights_};
  std::future<Fetched> fetched_;
};

TEST_F(DigestsTest, MayComeInAnyNumberOfMessages) {
  Begin();
  SendDigests({digests_[1]});
  SendDigests({digests_[2]});
  const Fetched fetched = fetched_.get();
  EXPECT_EQ(fetched.error, "");
  const auto expected = BytesOf(schedule_, weights_);
  ASSERT_EQ(fetched.sink.chunks.size(), expected.size());
  for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(fetched.sink.chunks.at(i), expected[i]) << i;
}

TEST_F(DigestsTest, AChunkIsNotHandedOnBeforeItsDigestIsRight) {
  Begin();
  SendDigests({digests_[2], digests_[1]});
  const Fetched fetched = fetched_.get();
  EXPECT_EQ(fetched.code, ErrorCode::kCorrupt);
  EXPECT_THAT(fetched.error, AllOf(HasSubstr("chunk 2 of 3"), HasSubstr("digest expected")));
  EXPECT_EQ(fetched.sink.chunk_order, std::vector<std::uint32_t>{0});
}

TEST_F(DigestsTest, AnotherNumberThanIsDueIsRefused) {
  Begin();
  SendDigests({digests_[1], digests_[2], digests_[2]});
  const Fetched fetched = fetched_.get();
  EXPECT_EQ(fetched.code, ErrorCode::kCorrupt);
  EXPECT_THAT(fetched.error, HasSubstr("sent 3 chunk digests more, expected 1 to 2"));
}

TEST_F(DigestsTest, AMessageWithoutAnyIsRefused) {
  Begin();
  SendDigests({});
  EXPECT_THAT(fetched_.get().error, HasSubstr("sent 0 chunk digests more, expected 1 to 2"));
}

TEST_F(DigestsTest, AnotherMessageInTheirPlaceIsRefusedByName) {
  Begin();
  publisher_.Send(wire::NeedSchedule{});
  EXPECT_THAT(fetched_.get().error, HasSubstr("expected 'more_digests', got 'need_schedule'"));
}

TEST_F(DigestsTest, APublisherThatFallsSilentBetweenThemIsLost) {
  Begin(std::chrono::milliseconds(2000));  // long for a publisher that speaks, also on a busy machine
  const Fetched fetched = fetched_.get();
  EXPECT_EQ(fetched.code, ErrorCode::kUnavailable);
  EXPECT_THAT(fetched.error, AllOf(HasSubstr("was silent for 2000 ms"), HasSubstr("the digest of chunk 2 of 3")));
}

// Host memory that is called a device's, and tells what becomes of the digests of chunks there.
class ToldChunks final : public ChunkMemory {
 public:
  MemoryResource& resource() override { return memory_; }
  PendingDigest BeginDigest(std::span<const RegionView> views) override {
    told.emplace_back("begun");
    return [this, pending = host_.BeginDigest(views)] {
      told.emplace_back("awaited");
      return pending();
    };
  }
  bool queues_digests() const override { return true; }
  std::vector<RegionView> Corrupted(std::span<const RegionView> views) override { return host_.Corrupted(views); }
  Mark Now() override { return 0; }
  void Await(Mark /*mark*/) override {}

  std::vector<std::string> told;

 private:
  class DeviceMemory final : public MemoryResource {
   public:
    std::byte* Allocate(std::size_t bytes) override { return host_.Allocate(bytes); }
    void Deallocate(std::byte* address, std::size_t bytes) noexcept override { host_.Deallocate(address, bytes); }
    Device device() const override { return {Device::Kind::kCuda, 0}; }

   private:
    HostMemory host_;
  };

  DeviceMemory memory_;
  HostChunkMemory host_{memory_};
};

using DeviceDigestsTest = SessionTest;

TEST_F(DeviceDigestsTest, OfAllChunksThatHaveComeAreBegunBeforeTheFirstIsAwaited) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 3);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<CopyingShm>());
  ChannelChooser copying(std::move(transports));
  ToldChunks device;
  FetchOptions options;
  options.channels = &copying;
  options.into.device = &device;
  CollectingSink sink;
  FetchSession::Open(std::vector{service->endpoint()}, {"engine", 1, 0, 1}, "", std::nullopt, options,
                     receiver_failpoints_, Soon())
      ->Fetch(SomeSchedule(false), {}, sink, Soon());
  EXPECT_THAT(device.told, ElementsAre("begun", "begun", "begun", "awaited", "awaited", "awaited"));
}

// Ten chunks of 8 MiB: more than are digested between two messages.
class BigVersionTest : public SessionTest {
 protected:
  static constexpr std::uint64_t kChunk = 8U << 20;
  static constexpr std::uint64_t kChunks = 10;

  BigVersionTest() {
    weights_.AddRandom({"big", DType::kBF16, {kChunks, kChunk / 2}}, 1);
    for (std::uint64_t i = 0; i < kChunks; ++i) {
      schedule_.Add(
          std::vector<Region>{{.tensor = 0, .offset = i * kChunk, .row_bytes = kChunk, .rows = 1, .stride = 0}});
    }
  }
  void Subscribe(RawReceiver& receiver) const {
    receiver.Send(wire::Hello{});
    receiver.ReceiveBytes();
    receiver.Send(wire::Subscribe{schedule_.digest(), schedule_.Encode(), {}});
  }

  Weights weights_;
  Schedule schedule_;
};

TEST_F(BigVersionTest, DigestsGoOutAsTheyAreMade) {
  const auto service = MakeService();
  const PublishedWeights published(*service, weights_, "run", 3);
  RawReceiver receiver(service->endpoint());
  Subscribe(receiver);
  std::vector<Digest> digests = std::get<wire::Subscribed>(receiver.Receive()).chunk_digests;
  EXPECT_EQ(digests.size(), 4);  // of 32 MiB
  while (digests.size() < kChunks) {
    const auto more = std::get<wire::MoreDigests>(receiver.Receive()).chunk_digests;
    digests.insert(digests.end(), more.begin(), more.end());
  }
  EXPECT_EQ(digests, DigestsOf(schedule_, weights_));
  // The next receiver of the same chunks has them all at once.
  RawReceiver next(service->endpoint());
  Subscribe(next);
  EXPECT_EQ(std::get<wire::Subscribed>(next.Receive()).chunk_digests, digests);
}

TEST_F(BigVersionTest, MemoryIsReleasedThoughItsReceiverLeftBeforeTheLastDigest) {
  const auto service = MakeService();
  for (std::uint64_t turn = 0; turn < 5; ++turn) {
    const PublishedWeights published(*service, weights_, "run", turn);  // its memory goes at the end of the turn
    RawReceiver receiver(service->endpoint());
    Subscribe(receiver);
    receiver.ReceiveBytes();  // subscribed
    receiver.Send(wire::Bye{});
    service->Withdraw(published.version);
    EXPECT_TRUE(published.version->WaitReleased(Soon()));
    service->Forget(published.version);
  }
}

}  // namespace
}  // namespace layercast::testing
