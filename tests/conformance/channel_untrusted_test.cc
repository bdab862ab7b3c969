// Conformance: how a session treats a channel, whichever it is. It never has more chunks under way on it than it has
// credits, and it does not believe the channel's word that a chunk has come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/tensor/region_views.h"
#include "tests/conformance/published_bytes.h"
#include "tests/support/error_of.h"
#include "tests/support/session/publishing.h"

namespace layercast::test {
namespace {

using layercast::testing::CollectingSink;
using layercast::testing::ErrorOf;
using layercast::testing::PublishedWeights;
using layercast::testing::SomeWeights;
using layercast::testing::Weights;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kCredits = 5;

// What a channel does to the bytes of its n-th chunk before it says that they have come.
using Deed = std::function<void(std::size_t chunk, std::span<std::byte> destination)>;

struct Watched {
  std::set<std::byte*> under_way{};  // destinations of the chunks under way
  std::size_t most = 0;
  bool shared_memory = false;  // two chunks under way had the same destination
  std::size_t chunks = 0;
  Deed deed;
};

// An end that copies if its channel does not, and then does its deed. The probe of the channel is left alone.
class WatchedEnd final : public FetchingEnd {
 public:
  WatchedEnd(std::unique_ptr<FetchingEnd> honest, Watched& watched) : honest_(std::move(honest)), watched_(watched) {}
  bool attaches() const override { return false; }
  void Submit(const ChunkRequest& request) override {
    if (request.offer_id == kProbeOffer) return honest_->Submit(request);
    destinations_[request.ticket] = request.destination;
    watched_.shared_memory = !watched_.under_way.insert(request.destination.data()).second || watched_.shared_memory;
    watched_.most = std::max(watched_.most, watched_.under_way.size());
    honest_->Submit(request);
  }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    std::optional<ChunkCompletion> completion = honest_->Poll(deadline);
    if (!completion || !destinations_.contains(completion->ticket)) return completion;
    const std::span<std::byte> destination = destinations_.extract(completion->ticket).mapped();
    watched_.under_way.erase(destination.data());
    if (honest_->attaches()) completion->views = PackAll(completion->views, destination.data());
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

class WatchedTransport final : public Transport {
 public:
  WatchedTransport(std::unique_ptr<Transport> honest, Watched& watched)
      : honest_(std::move(honest)), watched_(watched) {}
  std::string_view name() const override { return honest_->name(); }
  std::string WhyNotHere() const override { return honest_->WhyNotHere(); }
  std::string WhyNotBetween(const HostIdentity& mine, const HostIdentity& theirs) const override {
    return honest_->WhyNotBetween(mine, theirs);
  }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return honest_->Offering(options);
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<WatchedEnd>(honest_->Connect(address, deadline), watched_);
  }

 private:
  const std::unique_ptr<Transport> honest_;
  Watched& watched_;
};

std::vector<std::unique_ptr<Transport>> Alone(std::unique_ptr<Transport> transport) {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::move(transport));
  return transports;
}

// The parameters are a transport, and whether the version is a stream.
class UntrustedChannel : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  static const std::string& transport() { return std::get<0>(GetParam()); }
  static bool streams() { return std::get<1>(GetParam()); }

  // A schedule of thirty chunks of the third tensor.
  static Schedule ManyChunks() {
    Schedule schedule;
    for (std::uint64_t chunk = 0; chunk < 30; ++chunk) {
      schedule.Add(std::vector<Region>{{.tensor = 2, .offset = chunk * 800, .row_bytes = 800, .rows = 1, .stride = 0}});
    }
    return schedule;
  }

  struct Stopped {
    OfferService& service;
    ~Stopped() { service.Stop(); }
  };

  // Fetches the version over the watched channel.
  void Fetch(const Schedule& schedule, CollectingSink& sink) {
    const Deadline soon = Deadline::After(kPatience);
    OfferServiceOptions offering;
    offering.endpoint = "tcp://127.0.0.1:0";
    offering.name = "publisher";
    OfferService service(offering, pool_, failpoints_, nullptr, Alone(TransportNamed(transport())));
    std::optional<PublishedWeights> snapshot;
    const Stopped before_its_memory_goes{service};
    if (streams()) {
      service.Offer(std::make_shared<OfferedVersion>(
          Manifest::OfSpecs("run", 3, weights_.ToManifest().specs()),
          [this](std::span<const std::string>) { return weights_.Stream(); }, false));
    } else {
      snapshot.emplace(service, weights_, "run", 3);
    }
    auto watched = std::make_unique<WatchedTransport>(TransportNamed(transport()), watched_);
    FetchOptions options;
    options.channel = watched->name();  // named, because some are not taken by default
    ChannelChooser channels(Alone(std::move(watched)));
    options.channels = &channels;
    options.slots = kCredits;
    FetchSession::Open(std::vector{service.endpoint()}, {"engine", 1, 0, 1}, "", {}, options, failpoints_, soon)
        ->Fetch(schedule, {}, sink, soon);
  }

  WorkerPool pool_{2};
  FailPoints failpoints_;
  Watched watched_;
  const Weights weights_ = SomeWeights();
};

TEST_P(UntrustedChannel, IsAskedForNoMoreThanThereAreCreditsForEachWithMemoryOfItsOwn) {
  const Schedule schedule = ManyChunks();
  CollectingSink sink;
  Fetch(schedule, sink);
  const auto expected = layercast::testing::BytesOf(schedule, weights_);
  for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.chunks[i], expected[i]) << i;
  EXPECT_EQ(watched_.most, kCredits);
  EXPECT_FALSE(watched_.shared_memory);
  EXPECT_TRUE(watched_.under_way.empty());
}

TEST_P(UntrustedChannel, IsNotBelievedThatAChunkHasCome) {
  constexpr std::size_t kSound = 11;
  const std::vector<Deed> lies = {
      // Nothing was written, so what an earlier chunk left is there.
      [](std::size_t /*chunk*/, std::span<std::byte> to) { std::ranges::fill(to, std::byte{0}); },
      // The last byte is missing.
      [](std::size_t /*chunk*/, std::span<std::byte> to) { to.back() ^= std::byte{0xFF}; },
      // All of it came, but one byte off.
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

INSTANTIATE_TEST_SUITE_P(Every, UntrustedChannel,
                         ::testing::Combine(::testing::ValuesIn(TransportNames()), ::testing::Bool()),
                         [](const auto& test) {
                           return std::get<0>(test.param) + (std::get<1>(test.param) ? "_stream" : "_snapshot");
                         });

}  // namespace
}  // namespace layercast::test
