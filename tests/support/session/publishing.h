// A publisher's end and a receiver's, in one process, over a channel of choice: what session tests talk through.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/digest/digest.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/fetch/fetch.h"
#include "src/session/offer/offer_service.h"
#include "src/session/takers/taker_tally.h"
#include "tests/support/test_weights.h"

namespace layercast::testing {

inline Deadline Soon() { return Deadline::After(std::chrono::milliseconds(20'000)); }

// Three tensors: a small one, one with columns to slice, one of several chunks.
inline Weights SomeWeights(std::uint32_t seed = 1) {
  Weights weights;
  weights.AddRandom({"a", DType::kBF16, {5}}, seed);
  weights.AddRandom({"b", DType::kF32, {16, 12}}, seed + 1);
  weights.AddRandom({"c", DType::kBF16, {300, 40}}, seed + 2);
  return weights;
}

// What one rank of two would ask for: all of a, the right half of b's columns, the first 200 rows of c in two chunks.
inline Schedule SomeSchedule(bool stream) {
  const Region a{.tensor = 0, .offset = 0, .row_bytes = 10, .rows = 1, .stride = 0};
  const Region b{.tensor = 1, .offset = 24, .row_bytes = 24, .rows = 16, .stride = 48};
  const Region c1{.tensor = 2, .offset = 0, .row_bytes = 100 * 80, .rows = 1, .stride = 0};
  const Region c2{.tensor = 2, .offset = 100 * 80, .row_bytes = 100 * 80, .rows = 1, .stride = 0};
  Schedule schedule;
  if (stream) {
    schedule.Add(std::vector<Region>{a});
    schedule.Add(std::vector<Region>{b});
  } else {
    schedule.Add(std::vector<Region>{a, b});
  }
  schedule.Add(std::vector<Region>{c1});
  schedule.Add(std::vector<Region>{c2});
  return schedule;
}

// The bytes that a schedule's regions cover, chunk by chunk.
inline std::vector<std::vector<std::byte>> BytesOf(const Schedule& schedule, const Weights& weights) {
  std::vector<std::vector<std::byte>> chunks;
  for (const Chunk& chunk : schedule.chunks()) {
    std::vector<std::byte>& bytes = chunks.emplace_back();
    for (const Region& region : schedule.RegionsOf(chunk)) {
      for (std::uint64_t row = 0; row < region.rows; ++row) {
        const auto& tensor = weights.bytes(region.tensor);
        const auto begin = tensor.begin() + static_cast<std::ptrdiff_t>(region.offset + row * region.stride);
        bytes.insert(bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(region.row_bytes));
      }
    }
  }
  return chunks;
}

inline std::vector<Digest> DigestsOf(const Schedule& schedule, const Weights& weights) {
  std::vector<Digest> digests;
  for (const std::vector<std::byte>& bytes : BytesOf(schedule, weights)) digests.push_back(DigestOf(bytes));
  return digests;
}

// A copy of the weights in the service's memory, offered.
class PublishedWeights {
 public:
  PublishedWeights(OfferService& service, const Weights& weights, const std::string& lineage, std::uint64_t step,
                   const VersionPart& part = {}) {
    std::vector<ManifestEntry> entries;
    Offer offer{.id = service.NextOfferId(), .tensors = {}};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      memory_.emplace_back(service.arena(), weights.bytes(i).size());
      std::copy(weights.bytes(i).begin(), weights.bytes(i).end(), memory_.back().data());
      offer.tensors.push_back({memory_.back().data(), weights.bytes(i).size()});
      entries.push_back({.spec = weights.spec(i), .digest = DigestOf(weights.bytes(i)), .amax = 1});
    }
    version = std::make_shared<OfferedVersion>(Manifest(lineage, step, std::move(entries), part), offer, false);
    service.Offer(version);
  }
  std::shared_ptr<OfferedVersion> version;

 private:
  std::vector<Buffer> memory_;
};

class CollectingSink final : public FetchSink {
 public:
  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override {
    order.push_back(tensor);
    amaxes[tensor] = amax;
    digests[tensor] = digest;
  }
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> values) override {
    axis_amax[tensor].assign(values.begin(), values.end());
  }
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    ASSERT_FALSE(chunks.contains(chunk));
    chunk_order.push_back(chunk);
    for (const RegionView& view : regions) {
      const std::size_t at = chunks[chunk].size();
      chunks[chunk].resize(at + view.num_bytes());
      Pack(view, chunks[chunk].data() + at);
    }
  }

  std::vector<std::uint32_t> order;
  std::vector<std::uint32_t> chunk_order;
  std::map<std::uint32_t, float> amaxes;
  std::map<std::uint32_t, Digest> digests;
  std::map<std::uint32_t, std::vector<float>> axis_amax;
  std::map<std::uint32_t, std::vector<std::byte>> chunks;
};

// The service and what it borrows.
class SessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<OfferService> MakeService(std::uint64_t window_bytes = 1U << 20,
                                            std::chrono::milliseconds peer_timeout = std::chrono::milliseconds(5000),
                                            std::size_t max_sessions = 8) {
    OfferServiceOptions options;
    options.endpoint = "tcp://127.0.0.1:0";
    options.name = "publisher";
    options.stream_window_bytes = window_bytes;
    options.peer_timeout = peer_timeout;
    options.max_sessions = max_sessions;
    options.takers = &takers_;
    return std::make_unique<OfferService>(options, pool_, publisher_failpoints_);
  }

  std::unique_ptr<FetchSession> Open(const OfferService& service, const std::string& channel = "",
                                     const std::string& lineage = "", std::optional<std::uint64_t> step = std::nullopt,
                                     const ReceiverIdentity& self = {"engine", 1, 0, 1}) {
    FetchOptions options;
    options.channels = &channels_;
    options.channel = channel;
    return FetchSession::Open(std::vector{service.endpoint()}, self, lineage, step, options, receiver_failpoints_,
                              Soon());
  }

  WorkerPool pool_{2};
  TakerTally takers_;
  FailPoints publisher_failpoints_;
  FailPoints receiver_failpoints_;
  ChannelChooser channels_;
};

}  // namespace layercast::testing
