// A publisher of one snapshot that says what a test wants, and a receiver of it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/link/my_host.h"
#include "src/transport/all/transports.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/raw_peers.h"

namespace layercast::testing {

// Its bytes go over inproc.
class RawVersion {
 public:
  explicit RawVersion(const Weights& weights)
      : transport_(std::move(TransportsNamed(std::vector<std::string>{"inproc"}).front())),
        end_(transport_->Offering({})) {
    std::vector<ManifestEntry> entries;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      entries.push_back({.spec = weights.spec(i), .digest = DigestOf(weights.bytes(i)), .amax = 1});
      offer.tensors.push_back({weights.bytes(i).data(), weights.bytes(i).size()});
    }
    manifest_ = Manifest("run", 3, std::move(entries));
    end_->Add(offer);
  }

  void Welcome() {
    const wire::Frame hello = wire::Decode(link.ReceiveBytes());
    EXPECT_TRUE(std::holds_alternative<wire::Hello>(hello.message));
    session = hello.session;
    Send(wire::Welcome{.publisher = "raw",
                       .host = MyHost(),
                       .stream = false,
                       .channels = {{std::string(transport_->name()), end_->address()}},
                       .manifest = manifest_.Encode(),
                       .cost = {},
                       .config = {}});
  }
  void AlsoOffer(const Offer& other) { end_->Add(other); }
  void Send(const wire::Message& message) { link.Send({.session = session, .message = message}); }

  RawPublisher link;
  Offer offer{.id = 11, .tensors = {}};
  std::uint64_t session = 0;

 private:
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<OfferingEnd> end_;
  Manifest manifest_;
};

// What fetching from it ends with: the chunks, or an error.
struct Fetched {
  CollectingSink sink;
  FetchStats stats;
  ErrorCode code = ErrorCode::kInternal;
  std::string error;
};

inline std::future<Fetched> FetchInBackground(const std::string& endpoint, ChannelChooser& channels,
                                              const Schedule& schedule, const std::vector<AmaxRequest>& requests,
                                              std::chrono::milliseconds peer_timeout = std::chrono::seconds(5)) {
  return std::async(std::launch::async, [=, &channels] {
    Fetched fetched;
    FailPoints none;
    FetchOptions options;
    options.channels = &channels;
    options.peer_timeout = peer_timeout;
    try {
      const auto session =
          FetchSession::Open(std::vector{endpoint}, {"engine", 1, 0, 1}, "", std::nullopt, options, none, Soon());
      session->Fetch(schedule, requests, fetched.sink, Soon());
      session->AwaitCosts();
      fetched.stats = session->stats();
    } catch (const Error& error) {
      fetched.code = error.code();
      fetched.error = error.what();
    }
    return fetched;
  });
}

}  // namespace layercast::testing
