// How the time to feed N receivers grows with N if every end has an uplink of the same rate: with receivers that relay,
// and with the publisher alone, all in one run. `time` is the last receiver's, as a multiple of what one receiver takes
// alone; `copies` is how often the publisher sent the version. Over `zmq`, in one process; the bytes are not processed.
// Each receiver has measured its channel before.
#include <cstdio>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "bench/throttled_transport.h"
#include "src/base/digest/digest.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "src/session/offer/offer_service.h"
#include "src/session/relay/relay.h"

namespace layercast::bench {
namespace {

constexpr std::size_t kChunks = 256;  // many, so that what comes once, connecting and measuring, weighs little
constexpr std::size_t kChunkBytes = 64U << 10;
constexpr double kUplink = 16e6;          // bytes a second: a rate that two cores can serve 64 times over
constexpr std::size_t kMostWithout = 16;  // receivers without relays: more take minutes, and twice as long each time

Schedule WholeVersion() {
  Schedule schedule;
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    schedule.Add(std::vector<Region>{
        {.tensor = 0, .offset = i * kChunkBytes, .row_bytes = kChunkBytes, .rows = 1, .stride = 0}});
  }
  return schedule;
}

class Nothing final : public FetchSink {
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {}
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t /*chunk*/, std::span<const RegionView> /*regions*/) override {}
};

struct Fed {
  double seconds = 0;
  double copies = 0;  // how many the publisher sent
};

class Field {
 public:
  Field()
      : service_({.endpoint = "tcp://127.0.0.1:0", .name = "bench", .max_sessions = 256, .channels = {"zmq"}}, pool_,
                 none_) {
    bytes_ = Buffer(service_.arena(), kChunks * kChunkBytes);
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_.data()[i] = static_cast<std::byte>(i * 131 >> 7);
  }

  Fed Feed(std::size_t receivers, bool relays) {
    Publish();
    std::vector<std::optional<Relay>> relaying(receivers);
    if (relays) {
      for (auto& relay : relaying)
        relay.emplace(RelayOptions{.endpoint = "tcp://127.0.0.1:0", .channels = {"zmq"}}, pool_, none_);
    }
    const auto begin = Deadline::Clock::now();
    std::vector<std::future<FetchStats>> taken;
    for (std::size_t i = 0; i < receivers; ++i) {
      if (i == choosers_.size()) choosers_.emplace_back(Throttled("zmq", uplinks_));
      taken.push_back(std::async(std::launch::async, [&relay = relaying[i], &channels = choosers_[i], this] {
        return Take(relay ? &*relay : nullptr, channels);
      }));
    }
    Fed fed;
    for (auto& one : taken) {
      const PublisherShare share = one.get().publishers.front();
      fed.copies += static_cast<double>(share.bytes - share.relayed_bytes) / static_cast<double>(bytes_.size());
    }
    fed.seconds = std::chrono::duration<double>(Deadline::Clock::now() - begin).count();
    return fed;
  }

 private:
  void Publish() {
    if (version_ != nullptr) service_.Withdraw(version_);
    const ManifestEntry entry{.spec = {"w", DType::kU8, {static_cast<std::int64_t>(bytes_.size())}},
                              .digest = DigestOf(bytes_.span()),
                              .amax = 1};
    version_ = std::make_shared<OfferedVersion>(
        Manifest("bench", ++step_, {entry}),
        Offer{.id = service_.NextOfferId(), .tensors = {{bytes_.data(), bytes_.size()}}}, false);
    service_.Offer(version_);
  }

  FetchStats Take(Relay* relay, ChannelChooser& channels) {
    const Deadline deadline = Deadline::After(std::chrono::minutes(5));
    FetchOptions options;
    options.channels = &channels;
    options.relay = relay;
    FailPoints none;
    Nothing sink;
    const auto session = FetchSession::Open(std::vector{service_.endpoint()}, {"bench", 1, 0, 1}, "", std::nullopt,
                                            options, none, deadline);
    session->Fetch(WholeVersion(), {}, sink, deadline);
    return session->stats();
  }

  WorkerPool pool_{2};
  FailPoints none_;
  OfferService service_;
  Buffer bytes_;
  std::shared_ptr<OfferedVersion> version_;
  std::uint64_t step_ = 0;
  const double rate_ = kUplink;
  const std::shared_ptr<Uplinks> uplinks_ = std::make_shared<Uplinks>(rate_);
  std::deque<ChannelChooser> choosers_;  // of each receiver
};

void Print() {
  Field field;
  field.Feed(64, true);  // measures the channels
  const double alone = field.Feed(1, true).seconds;
  std::printf("%10s %14s %14s %14s %14s\n", "receivers", "relays: time", "copies", "without: time", "copies");
  for (const std::size_t receivers : {1, 2, 4, 8, 16, 32, 64}) {
    const Fed relayed = field.Feed(receivers, true);
    std::printf("%10zu %14.2f %14.2f", receivers, relayed.seconds / alone, relayed.copies);
    if (receivers <= kMostWithout) {
      const Fed without = field.Feed(receivers, false);
      std::printf(" %14.2f %14.2f", without.seconds / alone, without.copies);
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace layercast::bench

int main() { layercast::bench::Print(); }
