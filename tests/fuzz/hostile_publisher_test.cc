// Publishers that speak the protocol and mean it ill: what they send is valid, and its order, numbers, lengths and
// sessions are not what they should be; they go at any moment. A fetch from them ends, with an error that is no bug's
// or with the version's own bytes, and an engine serves what it did.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "src/session/link/my_host.h"
#include "src/transport/all/transports.h"
#include "tests/fuzz/fuzz_inputs.h"
#include "tests/fuzz/hostile_words.h"
#include "tests/support/reload/receiver_rig.h"
#include "tests/support/session/publishing.h"
#include "tests/support/temp_folder.h"

namespace layercast::testing {
namespace {

// Answers whoever has a session; over inproc it has the bytes that it says.
class HostilePublisher {
 public:
  HostilePublisher(const std::string& endpoint, std::uint32_t seed, const Weights& weights, const Schedule& schedule,
                   const std::vector<Digest>& digests)
      : socket_(context_, zmq::socket_type::router),
        transport_(std::move(TransportsNamed(std::vector<std::string>{"inproc"}).front())),
        end_(transport_->Offering({})),
        words_(seed, schedule, digests) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, 2);
    socket_.bind(endpoint);
    Offer offer{.id = 11, .tensors = {}};
    std::vector<ManifestEntry> entries;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      entries.push_back({.spec = weights.spec(i), .digest = DigestOf(weights.bytes(i)), .amax = 1});
      offer.tensors.push_back({weights.bytes(i).data(), weights.bytes(i).size()});
    }
    manifest_ = Manifest("run", 3, std::move(entries)).Encode();
    end_->Add(offer);
  }

  std::size_t said() const { return said_; }

  // Answers one session, until its receiver is `done`. A hostile one sooner or later says that this is over.
  template <typename Done>
  void Serve(const Done& done, bool hostile = true) {
    hostile_ = hostile;
    patience_ = 1 + words_.Below(12);
    const bool stream = hostile && words_.OneIn(3);
    while (!done()) {
      zmq::message_t from, raw;
      if (!socket_.recv(from)) {
        if (hostile && !receiver_.empty()) Refuse();
        continue;
      }
      if (!socket_.recv(raw)) continue;
      const wire::Frame frame = wire::Decode({static_cast<const std::byte*>(raw.data()), raw.size()});
      if (std::holds_alternative<wire::Hello>(frame.message)) session_ = frame.session;
      receiver_ = from.to_string();
      Answer(frame.message, stream);
    }
    receiver_.clear();
  }

 private:
  // As the protocol wants it, or anything else beside that or in its place.
  void Answer(const wire::Message& asked, bool stream) {
    if (!hostile_) return AnswerHonestly(asked);
    if (patience_ == 0) return Refuse();
    --patience_;
    if (words_.OneIn(4)) SayAnything();
    if (words_.OneIn(8)) return;  // as if it had not been asked
    if (std::holds_alternative<wire::Hello>(asked)) {
      Say(words_.OneIn(6) ? wire::Message(words_.OfAPublisher()) : Welcome(stream));
    } else if (std::holds_alternative<wire::Subscribe>(asked)) {
      Say(words_.OneIn(3) ? words_.OfAPublisher() : wire::Message(wire::Subscribed{stream ? 0U : 11U, {}, {}}));
      for (std::size_t more = words_.Below(5); more > 0; --more) SayAnything();
      if (!stream && words_.OneIn(2)) Say(wire::MoreDigests{words_.Digests(), words_.Amaxes()});
    } else if (std::holds_alternative<wire::Ping>(asked)) {
      Say(wire::Pong{});
    } else if (std::holds_alternative<wire::CostRequest>(asked)) {
      Say(wire::ServingCost{words_.Number()});
    } else {
      SayAnything();
    }
    if (words_.OneIn(8)) SayAnything();
  }

  void AnswerHonestly(const wire::Message& asked) {
    const auto say = [&](const wire::Message& message) {
      Send(wire::Encode({.session = session_, .message = message}));
    };
    if (std::holds_alternative<wire::Hello>(asked)) say(RightWelcome(false));
    if (std::holds_alternative<wire::Subscribe>(asked)) say(wire::Subscribed{11, words_.RightDigests(), {}});
    if (std::holds_alternative<wire::Ping>(asked)) say(wire::Pong{});
    if (std::holds_alternative<wire::CostRequest>(asked)) say(wire::ServingCost{1});
  }

  wire::Welcome RightWelcome(bool stream) const {
    return {.publisher = "hostile",
            .host = MyHost(),
            .stream = stream,
            .channels = {{"inproc", end_->address()}},
            .manifest = manifest_,
            .cost = {},
            .config = {}};
  }
  wire::Message Welcome(bool stream) {
    wire::Welcome welcome = RightWelcome(stream);
    switch (words_.Below(16)) {
      case 0: welcome.manifest.resize(words_.Below(manifest_.size())); break;
      case 1: welcome.manifest[words_.Below(manifest_.size())] ^= std::byte{4}; break;
      case 2: welcome.channels.clear(); break;
      case 3: welcome.channels.push_back({words_.Text(), words_.Text()}); break;
      case 4: welcome.channels.front().address = words_.Text(); break;
      case 5: welcome.protocol = static_cast<std::uint16_t>(words_.Number()); break;
      case 6: welcome.run = words_.Text(); break;
      case 7: welcome.config.assign(words_.Below(40), std::byte{'{'}); break;
      case 8: welcome.host.boot_id = words_.Text(); break;
      default: break;
    }
    return welcome;
  }
  void SayAnything() { Say(words_.OfAPublisher()); }
  void Say(const wire::Message& message) {
    const std::uint64_t session = words_.OneIn(12) ? words_.Number() : session_;
    for (std::size_t times = words_.OneIn(16) ? 2 : 1; times > 0; --times) Send(words_.Bytes(session, message));
  }
  void Refuse() {
    Send(wire::Encode({.session = session_, .message = wire::Refused{ErrorCode::kUnavailable, "enough"}}));
  }
  void Send(const std::vector<std::byte>& bytes) {
    ++said_;
    socket_.send(zmq::buffer(receiver_), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(bytes));
  }

  zmq::context_t context_{1};
  zmq::socket_t socket_;
  const std::unique_ptr<Transport> transport_;
  const std::unique_ptr<OfferingEnd> end_;
  std::vector<std::byte> manifest_;
  HostileWords words_;
  std::string receiver_;
  std::uint64_t session_ = 0;
  bool hostile_ = true;
  std::size_t patience_ = 0;
  std::size_t said_ = 0;
};

bool IsReady(const std::future<void>& done) {
  return done.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
}

class HostilePublisherTest : public SessionTest {
 protected:
  std::string Endpoint() const { return "ipc://" + (folder_ / "publisher").native(); }
  const TempFolder folder_;
};

TEST_F(HostilePublisherTest, HasNoByteTakenThatIsNotTheVersionsAndHoldsNobodyUp) {
  const Weights weights = SomeWeights();
  const Schedule schedule = SomeSchedule(true);
  const auto expected = BytesOf(schedule, weights);
  HostilePublisher publisher(Endpoint(), 41, weights, schedule, DigestsOf(schedule, weights));
  std::size_t whole = 0, cut_short = 0, fetches = 0;
  std::map<std::string, std::size_t> endings;
  for (const std::size_t messages = FuzzInputs(2'000); publisher.said() < messages && !HasFailure(); ++fetches) {
    CollectingSink sink;
    std::future<void> done = std::async(std::launch::async, [&] {
      FetchOptions options;
      options.channels = &channels_;
      options.channel = "inproc";
      FetchSession::Open(std::vector{Endpoint()}, {"engine", 1, 0, 1}, "", std::nullopt, options, receiver_failpoints_,
                         Soon())
          ->Fetch(schedule, {}, sink, Soon());
    });
    const bool hostile = fetches % 8 != 0;
    publisher.Serve([&] { return IsReady(done); }, hostile);
    try {
      done.get();
      // A stream that says that it is over is: the pipeline names what never came, because it knows the layer.
      EXPECT_TRUE(hostile || sink.chunks.size() == expected.size());
      ++(sink.chunks.size() == expected.size() ? whole : cut_short);
    } catch (const Error& error) {
      EXPECT_TRUE(hostile) << error.what();
      EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
      EXPECT_NE(error.code(), ErrorCode::kDeadlineExceeded) << error.what();  // that of the fetch, which is long
      ++endings[std::string(ErrorCodeName(error.code()))];
    }
    for (const auto& [chunk, bytes] : sink.chunks) EXPECT_EQ(bytes, expected.at(chunk)) << chunk;
  }
  EXPECT_GE(whole, (fetches + 7) / 8);  // those that were honest between the others
  EXPECT_LT(cut_short, fetches / 2);
  EXPECT_GT(endings["corrupt"], 0U);
}

TEST_F(HostilePublisherTest, LeavesAnEngineWithWhatItServed) {
  ReceiverRig rig;
  const Weights old = rig.Version(1), next = rig.Version(2);
  rig.receiver->ReloadWeights(EagerSource(old));
  const ServedBytes served = rig.engine.Served();
  const Schedule other = SomeSchedule(true);
  HostilePublisher publisher(Endpoint(), 42, next, other, DigestsOf(other, SomeWeights()));
  for (int reload = 0; reload < 40 && !HasFailure(); ++reload) {
    std::future<void> done =
        std::async(std::launch::async, [&] { rig.receiver->ReloadWeights(FromPublisher(Endpoint())); });
    publisher.Serve([&] { return IsReady(done); });
    EXPECT_THROW(done.get(), Error);  // its digests are of another schedule
    EXPECT_THAT(Differences(rig.engine.Served(), served), ::testing::IsEmpty());
  }
  rig.receiver->ReloadWeights(EagerSource(next));
  EXPECT_THAT(Differences(rig.engine.Served(), rig.Expected(next)), ::testing::IsEmpty());
}

}  // namespace
}  // namespace layercast::testing
