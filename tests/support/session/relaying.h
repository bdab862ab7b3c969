// What tests of relays share: receivers that may relay, over a channel that copies.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <latch>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "src/session/link/my_host.h"
#include "src/session/relay/relay.h"
#include "tests/support/session/copying_shm.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/raw_peers.h"

namespace layercast::testing {

// What relays of these tests offer.
inline const std::string kRelayChannel = "shm";

inline ChannelChooser Copying() {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<CopyingShm>());
  return ChannelChooser(std::move(transports));
}

class HookedSink final : public FetchSink {
 public:
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {}
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    if (before_chunk) before_chunk(chunk);
    collected.OnChunk(chunk, regions);
  }

  std::function<void(std::uint32_t chunk)> before_chunk;
  CollectingSink collected;
};

// One receiver, which may relay.
class Taker {
 public:
  Taker(const OfferService& publisher, ChannelChooser& channels) : Taker(std::vector{publisher.endpoint()}, channels) {}
  Taker(std::vector<std::string> publishers, ChannelChooser& channels) : publishers_(std::move(publishers)) {
    options.channels = &channels;
  }

  Relay& Relays(WorkerPool& pool) {
    relay.emplace(RelayOptions{.endpoint = "tcp://127.0.0.1:0", .channels = {kRelayChannel}}, pool, failpoints);
    options.relay = &*relay;
    return *relay;
  }
  void Fetch(const Schedule& schedule) {
    const auto session =
        FetchSession::Open(publishers_, {"engine", 1, 0, 1}, "", std::nullopt, options, failpoints, Soon());
    session->Fetch(schedule, {}, sink, Soon());
    stats = session->stats();
  }
  std::future<void> FetchInBackground(const Schedule& schedule) {
    return std::async(std::launch::async, [this, schedule] { Fetch(schedule); });
  }
  void ExpectTook(const Schedule& schedule, const Weights& weights) const {
    const auto expected = BytesOf(schedule, weights);
    ASSERT_EQ(sink.collected.chunks.size(), expected.size());
    for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.collected.chunks.at(i), expected[i]) << i;
  }
  std::uint64_t relayed() const { return stats.publishers.front().relayed_bytes; }

  // The last of them; empty: none.
  std::string relay_it_took_from() const {
    const std::vector<std::string>& relays = stats.publishers.front().relays;
    return relays.empty() ? "" : relays.back();
  }

  FailPoints failpoints;
  FetchOptions options;
  HookedSink sink;
  std::optional<Relay> relay;
  FetchStats stats;

 private:
  const std::vector<std::string> publishers_;
};

// A receiver that says what it likes of relays.
class RawTaker {
 public:
  explicit RawTaker(const OfferService& service) : link_(service.endpoint()) {
    wire::Hello hello;
    hello.engine = "raw";
    hello.host = MyHost();
    Send(hello);
    EXPECT_TRUE(std::holds_alternative<wire::Welcome>(link_.Receive()));
  }
  void Send(const wire::Message& message) { link_.Send(wire::Encode({.session = 9, .message = message})); }
  wire::Message Receive() { return link_.Receive(); }
  std::string Refusal() { return link_.Refusal(); }

 private:
  RawReceiver link_;
};

// Waits for what another thread does; true unless that takes for ever.
inline bool Await(std::latch& latch) {
  const Deadline deadline = Soon();
  while (!latch.try_wait()) {
    if (deadline.Passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

class RelayTest : public SessionTest {
 protected:
  // The second follows the first, which has its first chunk, and goes on with `then` when the second has it too.
  // Returns what becomes of the first; the second has all.
  std::future<void> FetchWhileTheFirstHoldsItsFirstChunk(Taker& first, Taker& second,
                                                         const std::function<void()>& then) {
    std::latch has_one(1), has_followed(1);
    first.sink.before_chunk = [&](std::uint32_t chunk) {
      if (chunk != 0) return;
      has_one.count_down();
      EXPECT_TRUE(Await(has_followed)) << "chunk 0 was not served on before chunk 1 was taken";
      then();
    };
    second.sink.before_chunk = [&](std::uint32_t chunk) {
      if (chunk == 0) has_followed.count_down();
    };
    auto taken = first.FetchInBackground(schedule_);
    EXPECT_TRUE(Await(has_one));
    second.Fetch(schedule_);
    taken.wait();
    return taken;
  }

  const Weights weights_ = SomeWeights();
  const Schedule schedule_ = SomeSchedule(false);
  ChannelChooser copying_ = Copying();
  std::unique_ptr<OfferService> service_ = MakeService(1U << 20, std::chrono::milliseconds(5000), 100);
  const PublishedWeights published_{*service_, weights_, "run", 3};
};

}  // namespace layercast::testing
