// Streams of publishers that say what a test wants: what a receiver asks of the others while it waits for one, and what
// it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/session/link/my_host.h"
#include "src/transport/all/transports.h"
#include "tests/support/error_of.h"
#include "tests/support/no_more_files.h"
#include "tests/support/session/publishing.h"
#include "tests/support/session/raw_peers.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

// A publisher of a stream.
class RawStream {
 public:
  explicit RawStream(Manifest manifest)
      : manifest_(std::move(manifest)),
        transport_(std::move(TransportsNamed(std::vector<std::string>{"inproc"}).front())),
        end_(transport_->Offering({})) {}
  void TakeHello() {
    const wire::Frame hello = wire::Decode(link.ReceiveBytes());
    EXPECT_TRUE(std::holds_alternative<wire::Hello>(hello.message));
    session_ = hello.session;
  }
  void Welcome() {
    Send(wire::Welcome{.publisher = "raw",
                       .host = MyHost(),
                       .stream = true,
                       .channels = {{std::string(transport_->name()), end_->address()}},
                       .manifest = manifest_.Encode(),
                       .cost = {},
                       .config = {}});
  }
  void Begin() {
    link.ReceiveBytes();  // subscribe
    Send(wire::Subscribed{});
  }
  void Send(const wire::Message& message) { link.Send({.session = session_, .message = message}); }

  RawPublisher link;

 private:
  const Manifest manifest_;
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<OfferingEnd> end_;
  std::uint64_t session_ = 0;
};

// One of several publishers, which has no tensors unless any are given.
Manifest PartOfRun(int rank, int ranks, std::vector<ManifestEntry> tensors = {}) {
  return {"run", 3, std::move(tensors), {rank, ranks}};
}

Manifest OneTensor() { return Manifest::OfSpecs("run", 3, std::vector<TensorSpec>{{"w", DType::kF32, {16, 12}}}); }

class RawStreamTest : public SessionTest {
 protected:
  // What taking the stream of these ends with: "", or an error.
  std::future<std::string> Take(const std::vector<RawStream*>& publishers,
                                const std::vector<AmaxRequest>& requests = {}) {
    std::vector<std::string> endpoints;
    for (const RawStream* publisher : publishers) endpoints.push_back(publisher->link.endpoint());
    return std::async(std::launch::async, [this, endpoints, requests]() -> std::string {
      FetchOptions options;
      options.channels = &channels_;
      options.peer_timeout = std::chrono::seconds(20);  // nobody says pong here
      try {
        CollectingSink sink;
        FetchSession::Open(endpoints, {"engine", 1, 0, 1}, "", {}, options, receiver_failpoints_, Soon())
            ->Fetch({}, requests, sink, Soon());
        return "";
      } catch (const Error& error) {
        return error.what();
      }
    });
  }
};

// Without a word its lease would lapse.
TEST_F(RawStreamTest, APublisherThatHasEndedHearsPingsAsLongAsAnotherIsWaitedFor) {
  RawStream first(PartOfRun(0, 2));
  RawStream second(PartOfRun(1, 2));
  auto taken = Take({&first, &second});
  for (RawStream* publisher : {&first, &second}) {
    publisher->TakeHello();
    publisher->Welcome();
  }
  for (RawStream* publisher : {&first, &second}) publisher->Begin();
  first.Send(wire::StreamEnd{});
  first.link.AwaitPing();  // which may have been sent before it ended
  first.link.AwaitPing();
  second.Send(wire::StreamEnd{});
  EXPECT_EQ(taken.get(), "");
}

TEST_F(RawStreamTest, APublisherThatIsOpenHearsPingsWhileOthersAreOpened) {
  RawStream first(PartOfRun(0, 3));
  RawStream second(PartOfRun(1, 3));
  RawStream third(PartOfRun(2, 3));
  auto taken = Take({&first, &second, &third});
  first.TakeHello();
  first.Welcome();
  second.TakeHello();
  second.link.AwaitPing();  // it takes so long that the first is to hear something, too
  second.Welcome();
  first.link.AwaitPing();
  third.TakeHello();
  third.Send(wire::Refused{ErrorCode::kUnavailable, "no more of this"});
  EXPECT_THAT(taken.get(), HasSubstr("no more of this"));
}

// Another engine's ranks may let it begin, and nothing that this one wants holds it up.
TEST_F(RawStreamTest, APublisherMaySendItsWholeStreamWhileAnotherHasNotAnswered) {
  constexpr std::uint32_t kTensors = 9;
  std::vector<ManifestEntry> tensors;
  for (std::uint32_t i = 0; i < kTensors; ++i) tensors.push_back({{"w" + std::to_string(i), DType::kF32, {4}}, {}});
  RawStream first(PartOfRun(0, 2, tensors));
  RawStream second(PartOfRun(1, 2));
  auto taken = Take({&second, &first});
  for (RawStream* publisher : {&second, &first}) {
    publisher->TakeHello();
    publisher->Welcome();
  }
  first.Begin();
  for (std::uint32_t i = 0; i < kTensors; ++i) {
    wire::ReadyTensor ready;
    ready.tensor = i;
    first.Send(wire::TensorsReady{{ready}});
  }
  wire::StreamEnd end;
  end.tensors = kTensors;
  first.Send(end);
  first.link.AwaitPing();  // which may have been sent before it had taken in what was sent
  first.link.AwaitPing();
  second.Begin();
  second.Send(wire::StreamEnd{});
  EXPECT_EQ(taken.get(), "");
}

TEST_F(RawStreamTest, APublisherForWhichNoDescriptorIsLeftIsNamed) {
  const NoMoreFiles hold;
  FetchOptions options;
  options.channels = &channels_;
  EXPECT_THAT(ErrorOf(
                  [&] {
                    FetchSession::Open(std::vector<std::string>{"tcp://127.0.0.1:1"}, {}, "", {}, options,
                                       receiver_failpoints_, Soon());
                  },
                  ErrorCode::kResourceExhausted),
              HasSubstr("publisher tcp://127.0.0.1:1: no file descriptor is left"));
}

TEST_F(RawStreamTest, ATensorWithoutTheMagnitudesThatWereAskedForIsRefused) {
  RawStream publisher(OneTensor());
  auto taken = Take({&publisher}, {{0, kKeptRows}});
  publisher.TakeHello();
  publisher.Welcome();
  publisher.Begin();
  publisher.Send(wire::TensorsReady{{{}}});
  EXPECT_EQ(taken.get(), "publisher " + publisher.link.endpoint() + " sent 0 magnitudes of tensor 0, expected 16");
}

TEST_F(RawStreamTest, WhatIsNoMagnitudeIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const auto with = [](float amax, float last_of_rows) {
    wire::ReadyTensor ready;
    ready.amax = amax;
    ready.axis_amax.assign(16, 1.0F);
    ready.axis_amax.back() = last_of_rows;
    return ready;
  };
  const std::vector<wire::ReadyTensor> wrong = {with(nan, 1), with(infinity, 1), with(-2, 1),
                                                with(1, nan), with(1, infinity), with(1, -1)};
  for (const wire::ReadyTensor& ready : wrong) {
    RawStream publisher(OneTensor());
    auto taken = Take({&publisher}, {{0, kKeptRows}});
    publisher.TakeHello();
    publisher.Welcome();
    publisher.Begin();
    publisher.Send(wire::TensorsReady{{ready}});
    EXPECT_THAT(taken.get(), HasSubstr("as a magnitude of tensor 0, expected a finite one of at least 0"));
  }
}

}  // namespace
}  // namespace layercast::testing
