// A publisher that ends in this process while a rank reads the memory that it offered: the rank has the chunk's bytes
// to the last, and then hears that the publisher is gone.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

// Has something done when a chunk has come, and reads the chunk then.
class LateSink final : public FetchSink {
 public:
  explicit LateSink(std::function<void()> before_reading) : before_reading_(std::move(before_reading)) {}
  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override {
    collected.OnTensor(tensor, amax, digest);
  }
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override { collected.OnAxisAmax(tensor, amax); }
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    before_reading_();
    collected.OnChunk(chunk, regions);
  }

  CollectingSink collected;

 private:
  const std::function<void()> before_reading_;
};

// By channel: those that hand out views of the publisher's memory.
class EndingPublisherTest : public SessionTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Takes what `service_` offers. When the first chunk has come, the publisher ends.
  void ExpectOneChunk(bool stream) {
    const Schedule schedule = SomeSchedule(stream);
    const auto session = Open(*service_, GetParam());
    LateSink sink([this] { End(); });
    const auto fetch = [&] { session->Fetch(schedule, {}, sink, Soon()); };
    EXPECT_NE(ErrorOf(fetch, ErrorCode::kUnavailable), "no error");
    ASSERT_EQ(sink.collected.chunk_order.size(), 1U);
    const std::uint32_t chunk = sink.collected.chunk_order.front();
    EXPECT_EQ(sink.collected.chunks[chunk], BytesOf(schedule, weights_).at(chunk));
  }
  // As a trainer's publisher does.
  void End() {
    service_->Stop();
    snapshot_.reset();
    service_.reset();
  }

  const Weights weights_ = SomeWeights();
  std::unique_ptr<OfferService> service_ = MakeService();
  std::optional<PublishedWeights> snapshot_;
};

TEST_P(EndingPublisherTest, OfASnapshot) {
  snapshot_.emplace(*service_, weights_, "run", 7);
  ExpectOneChunk(false);
}

TEST_P(EndingPublisherTest, OfAStream) {
  service_->Offer(std::make_shared<OfferedVersion>(
      Manifest::OfSpecs("run", 7, weights_.ToManifest().specs()),
      [this](std::span<const std::string>) { return weights_.Stream(); }, false));
  ExpectOneChunk(true);
}

INSTANTIATE_TEST_SUITE_P(OverEachChannel, EndingPublisherTest, ::testing::Values("inproc", "shm"),
                         [](const auto& channel) { return channel.param; });

}  // namespace
}  // namespace layercast::testing
