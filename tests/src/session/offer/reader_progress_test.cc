// What a publisher's status says of those who read from it directly, while they do: how many bytes they have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/session/ask/publisher_status.h"
#include "tests/support/session/other_transport.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

// A channel that attaches, as its transport does, and brings one chunk before it is let go on.
class HoldingTransport final : public OtherTransport {
 public:
  explicit HoldingTransport(std::latch& go_on) : OtherTransport("shm"), go_on_(go_on) {}
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<End>(honest_->Connect(address, deadline), go_on_);
  }

 private:
  class End final : public FetchingEnd {
   public:
    End(std::unique_ptr<FetchingEnd> honest, std::latch& go_on) : honest_(std::move(honest)), go_on_(go_on) {}
    bool attaches() const override { return honest_->attaches(); }
    void Submit(const ChunkRequest& request) override { honest_->Submit(request); }
    std::optional<ChunkCompletion> Poll(Deadline deadline) override {
      while (brought_ > 0 && !go_on_.try_wait()) {
        if (deadline.Passed()) return std::nullopt;
        std::this_thread::yield();
      }
      ++brought_;
      return honest_->Poll(deadline);
    }
    void Close() noexcept override { honest_->Close(); }

   private:
    const std::unique_ptr<FetchingEnd> honest_;
    std::latch& go_on_;
    int brought_ = 0;
  };

  std::latch& go_on_;
};

class ReaderProgressTest : public SessionTest {
 protected:
  std::future<void> FetchInBackground(const Schedule& schedule, ChannelChooser& channels, const std::string& channel) {
    return std::async(std::launch::async, [this, &schedule, &channels, channel] {
      FetchOptions options;
      options.channels = &channels;
      options.channel = channel;
      options.measure = false;
      CollectingSink sink;
      FetchSession::Open(std::vector{service_->endpoint()}, {"engine-7", 1, 0, 1}, "", std::nullopt, options,
                         receiver_failpoints_, Soon())
          ->Fetch(schedule, {}, sink, Soon());
    });
  }
  // The only reader, once it has said that it has so many.
  wire::ReaderStatus ReaderWith(std::uint64_t bytes) const {
    for (const Deadline deadline = Soon(); !deadline.Passed();) {
      const wire::StatusAnswer status = AskPublisherStatus(service_->endpoint(), {}, deadline);
      const std::vector<wire::ReaderStatus>& readers = status.versions.at(0).receivers;
      if (!readers.empty() && readers[0].bytes == bytes) return readers[0];
    }
    ADD_FAILURE() << "no reader says that it has " << bytes << " bytes";
    return {};
  }

  const Weights weights_ = SomeWeights();
  const std::unique_ptr<OfferService> service_ = MakeService();
};

TEST_F(ReaderProgressTest, OneThatAttachesToASnapshotIsCounted) {
  const PublishedWeights published(*service_, weights_, "run", 3);
  const Schedule schedule = SomeSchedule(false);
  std::latch go_on(1);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<HoldingTransport>(go_on));
  ChannelChooser channels(std::move(transports));
  auto taken = FetchInBackground(schedule, channels, "shm");
  const wire::ReaderStatus reader = ReaderWith(schedule.chunks()[0].num_bytes);
  EXPECT_EQ(reader.engine, "engine-7");
  EXPECT_EQ(reader.takes_from, "");
  go_on.count_down();
  taken.get();
}

TEST_F(ReaderProgressTest, OneThatTakesAStreamIsCounted) {
  std::latch go_on(1);
  const auto walk = [&](std::span<const std::string>) {
    return MakeWeightsIterator([&, next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
      if (next == 2) go_on.wait();
      return next == weights_.size() ? std::nullopt : std::optional(weights_.at(next++));
    });
  };
  service_->Offer(
      std::make_shared<OfferedVersion>(Manifest::OfSpecs("run", 7, weights_.ToManifest().specs()), walk, false));
  const Schedule schedule = SomeSchedule(true);
  auto taken = FetchInBackground(schedule, channels_, "zmq");
  EXPECT_EQ(ReaderWith(schedule.chunks()[0].num_bytes + schedule.chunks()[1].num_bytes).engine, "engine-7");
  go_on.count_down();
  taken.get();
}

}  // namespace
}  // namespace layercast::testing
