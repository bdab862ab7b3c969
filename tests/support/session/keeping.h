// Receivers that keep what they take, and versions of which little has changed: for tests of deltas.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "src/session/deltas/source_copy.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {

// The same tensors, with so many of a thousand bytes changed.
inline Weights Changed(const Weights& from, int per_mille, std::mt19937& random) {
  Weights weights = from;
  for (std::size_t tensor = 0; tensor < weights.size(); ++tensor) {
    for (std::byte& byte : weights.bytes(tensor)) {
      if (static_cast<int>(random() % 1000) < per_mille) byte ^= static_cast<std::byte>(1 + random() % 255);
    }
  }
  return weights;
}

// A receiver that keeps what it takes.
class Keeper {
 public:
  Keeper(std::vector<std::string> publishers, ChannelChooser& channels, const std::string& channel = "")
      : publishers_(std::move(publishers)) {
    options.channels = &channels;
    options.channel = channel;
    options.into.source = &memory_;
    options.delta = DeltaUse::kAlways;
  }
  Keeper(const OfferService& service, ChannelChooser& channels, const std::string& channel = "")
      : Keeper(std::vector{service.endpoint()}, channels, channel) {}

  // Takes the newest version, which becomes what is kept: an engine that commits it.
  void Fetch(const Schedule& schedule) {
    sink = CollectingSink();
    const auto session =
        FetchSession::Open(publishers_, {"engine", 1, 0, 1}, "", std::nullopt, options, failpoints, Soon());
    session->Fetch(schedule, {}, sink, Soon());
    stats = session->stats();
    options.base = session->source();
  }
  void ExpectTook(const Schedule& schedule, const Weights& weights) {
    const auto expected = BytesOf(schedule, weights);
    ASSERT_EQ(sink.chunks.size(), expected.size());
    for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.chunks.at(i), expected[i]) << i;
  }
  const DeltaChoice& choice() const { return *stats.delta; }

 private:
  HostMemory memory_;  // of what `options` has as its base

 public:
  FetchOptions options;
  FailPoints failpoints;
  CollectingSink sink;
  FetchStats stats;

 private:
  const std::vector<std::string> publishers_;
};

class DeltaSessionTest : public SessionTest {
 protected:
  OfferService& Start() { return *services_.emplace_back(MakeService()); }
  const Weights& Publish(OfferService& service, const Weights& weights, std::uint64_t step) {
    weights_.push_back(weights);
    published_.push_back(std::make_unique<PublishedWeights>(service, weights, "run", step));
    return weights_.back();
  }
  void Withdraw(OfferService& service, std::size_t index) {
    service.Withdraw(published_[index]->version);
    ASSERT_TRUE(published_[index]->version->WaitReleased(Soon()));
    service.Forget(published_[index]->version);
    published_[index].reset();
  }

  std::deque<Weights> weights_;
  std::mt19937 random_{7};
  const Schedule schedule_ = SomeSchedule(false);
  std::vector<std::unique_ptr<OfferService>> services_;
  std::vector<std::unique_ptr<PublishedWeights>> published_;  // in memory of those
};

}  // namespace layercast::testing
