// What a session makes of a channel that did well when it was measured: no success is believed, and no more is asked of
// it at a time than the session has credits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "src/tensor/region_views.h"
#include "tests/session/other_inproc.h"
#include "tests/session/publishing.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kCredits = 5;

// What a channel does to the bytes of its n-th chunk, which it then says have come.
using Deed = std::function<void(std::size_t chunk, std::span<std::byte> destination)>;

struct Watched {
  std::set<std::byte*> under_way{};  // where chunks go
  std::size_t most = 0;
  bool shared_memory = false;  // two of them went to one place
  std::size_t chunks = 0;
  Deed deed;
};

// Copies, as a channel between hosts does, and then does its deed.
class WatchedEnd final : public FetchingEnd {
 public:
  WatchedEnd(std::unique_ptr<FetchingEnd> honest, Watched& watched) : honest_(std::move(honest)), watched_(watched) {}
  bool attaches() const override { return false; }
  void Submit(const ChunkRequest& request) override {
    destinations_[request.ticket] = request.destination;
    watched_.shared_memory = !watched_.under_way.insert(request.destination.data()).second || watched_.shared_memory;
    watched_.most = std::max(watched_.most, watched_.under_way.size());
    honest_->Submit(request);
  }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    std::optional<ChunkCompletion> completion = honest_->Poll(deadline);
    if (!completion) return completion;
    const std::span<std::byte> destination = destinations_.extract(completion->ticket).mapped();
    watched_.under_way.erase(destination.data());
    completion->views = PackAll(completion->views, destination.data());
    if (watched_.deed) watched_.deed(watched_.chunks, destination);
    ++watched_.chunks;
    return completion;
  }
  void Close() noexcept override { honest_->Close(); }

 private:
  const std::unique_ptr<FetchingEnd> honest_;
  Watched& watched_;
  std::map<std::uint64_t, std::span<std::byte>> destinations_;
};

class WatchedTransport final : public OtherInproc {
 public:
  explicit WatchedTransport(Watched& watched) : watched_(watched) {}
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    std::unique_ptr<FetchingEnd> end = honest_->Connect(address, deadline);
    if (connections_++ == 0) return end;  // the probe's
    return std::make_unique<WatchedEnd>(std::move(end), watched_);
  }

 private:
  Watched& watched_;
  mutable int connections_ = 0;
};

class UntrustedChannelTest : public SessionTest, public ::testing::WithParamInterface<bool> {
 protected:
  static bool streams() { return GetParam(); }

  // Thirty chunks of the third tensor.
  static Schedule ManyChunks() {
    Schedule schedule;
    for (std::uint64_t chunk = 0; chunk < 30; ++chunk) {
      schedule.Add(std::vector<Region>{{.tensor = 2, .offset = chunk * 800, .row_bytes = 800, .rows = 1, .stride = 0}});
    }
    return schedule;
  }

  // Takes the version over the watched channel.
  void Fetch(const Schedule& schedule, CollectingSink& sink) {
    const auto service = MakeService();
    std::optional<PublishedWeights> snapshot;
    if (streams()) {
      service->Offer(std::make_shared<OfferedVersion>(
          Manifest::OfSpecs("run", 3, weights_.ToManifest().specs()),
          [this](std::span<const std::string>) { return weights_.Stream(); }, false));
    } else {
      snapshot.emplace(*service, weights_, "run", 3);
    }
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<WatchedTransport>(watched_));
    ChannelChooser channels(std::move(transports));
    FetchOptions options;
    options.channels = &channels;
    options.slots = kCredits;
    FetchSession::Open(std::vector{service->endpoint()}, {"engine", 1, 0, 1}, "", {}, options, receiver_failpoints_,
                       Soon())
        ->Fetch(schedule, {}, sink, Soon());
  }

  Watched watched_;
  const Weights weights_ = SomeWeights();
};

TEST_P(UntrustedChannelTest, IsAskedForNoMoreThanThereAreCreditsForEachWithMemoryOfItsOwn) {
  const Schedule schedule = ManyChunks();
  CollectingSink sink;
  Fetch(schedule, sink);
  const auto expected = BytesOf(schedule, weights_);
  for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.chunks[i], expected[i]) << i;
  EXPECT_EQ(watched_.most, kCredits);
  EXPECT_FALSE(watched_.shared_memory);
  EXPECT_TRUE(watched_.under_way.empty());
}

TEST_P(UntrustedChannelTest, IsNotBelievedThatAChunkHasCome) {
  constexpr std::size_t kSound = 11;
  const std::vector<Deed> lies = {
      // Nothing was written: what an earlier chunk left is there.
      [](std::size_t /*chunk*/, std::span<std::byte> to) { std::ranges::fill(to, std::byte{0}); },
      // The last byte is missing.
      [](std::size_t /*chunk*/, std::span<std::byte> to) { to.back() ^= std::byte{0xFF}; },
      // All of it came, a byte further on.
      [](std::size_t /*chunk*/, std::span<std::byte> to) { std::ranges::rotate(to, to.begin() + 1); },
  };
  for (std::size_t lie = 0; lie < lies.size(); ++lie) {
    watched_ = {.deed = [&](std::size_t chunk, std::span<std::byte> to) {
      if (chunk == kSound) lies[lie](chunk, to);
    }};
    CollectingSink sink;
    EXPECT_THAT(ErrorOf([&] { Fetch(ManyChunks(), sink); }), AllOf(HasSubstr("'c'"), HasSubstr("digest expected")))
        << lie;
    EXPECT_EQ(sink.chunks.size(), kSound) << lie;
  }
}

INSTANTIATE_TEST_SUITE_P(InEachMode, UntrustedChannelTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "stream" : "snapshot"; });

}  // namespace
}  // namespace layercast::testing
