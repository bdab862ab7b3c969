// A publisher that is killed or frozen while a session with it is opened, at every step: it is named, as a peer that is
// gone or that did not answer in time. Nothing is held against its channels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "src/session/ask/publisher_status.h"
#include "src/session/choose/probe_publisher.h"
#include "src/transport/all/channel_names.h"
#include "src/transport/zmq/zmq_transport.h"
#include "tests/support/channels_here.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/session/other_transport.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kShort{400};     // where nobody is there to answer
constexpr std::chrono::milliseconds kSilence{3000};  // where somebody may be
constexpr const char* kWhole[] = {"0", "1"};         // the only rank of a trainer

class DyingPublisher {
 public:
  explicit DyingPublisher(const std::string& channels, const char* const (&part)[2] = kWhole,
                          const std::string& failpoints = "")
      : child_({test::FolderOfThisProgram() + "/publishing_peer", channels, part[0], part[1], failpoints}),
        endpoint(child_.ReadLine()) {}
  // Returns once it has happened.
  void Kill() {
    child_.Signal(SIGKILL);
    child_.Wait();
  }
  void Freeze() const { child_.Freeze(); }
  void Thaw() const { child_.Signal(SIGCONT); }

 private:
  test::ChildProcess child_;

 public:
  const std::string endpoint;
};

enum class Moment { kConnecting, kMeasuring };

// What happens to the publisher, and whether it has happened.
struct Strike {
  std::function<void()> now;
  bool done = false;
  void Once() {
    if (!std::exchange(done, true)) now();
  }
};

class StrikingEnd final : public FetchingEnd {
 public:
  StrikingEnd(std::unique_ptr<FetchingEnd> honest, std::function<void()> after_first_chunk)
      : honest_(std::move(honest)), after_first_chunk_(std::move(after_first_chunk)) {}
  bool attaches() const override { return honest_->attaches(); }
  std::string lane() const override { return honest_->lane(); }
  void Submit(const ChunkRequest& request) override { honest_->Submit(request); }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    std::optional<ChunkCompletion> completion = honest_->Poll(deadline);
    if (completion) after_first_chunk_();
    return completion;
  }
  void Close() noexcept override { honest_->Close(); }

 private:
  const std::unique_ptr<FetchingEnd> honest_;
  const std::function<void()> after_first_chunk_;
};

// Strikes at the `nth` time that this moment comes.
class StrikingTransport final : public OtherTransport {
 public:
  StrikingTransport(const std::string& name, Moment moment, Strike& strike, int nth = 1)
      : OtherTransport(name), moment_(moment), strike_(strike), left_(nth) {}
  std::chrono::milliseconds connect_time() const override {
    return strike_.done ? kShort : OtherTransport::connect_time();
  }
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    At(Moment::kConnecting);
    auto end = honest_->Connect(address, strike_.done ? deadline.AtMost(kShort) : deadline);
    return std::make_unique<StrikingEnd>(std::move(end), [this] { At(Moment::kMeasuring); });
  }

 private:
  void At(Moment moment) const {
    if (moment == moment_ && --left_ == 0) strike_.Once();
  }
  const Moment moment_;
  Strike& strike_;
  mutable int left_;
};

class DyingPublisherTest : public ::testing::Test {
 protected:
  std::unique_ptr<FetchSession> Open(const std::vector<std::string>& endpoints, ChannelChooser& channels,
                                     Deadline deadline = Soon()) {
    FetchOptions options;
    options.channels = &channels;
    options.channel = forced_;
    options.peer_timeout = kSilence;
    return FetchSession::Open(endpoints, {"engine", 1, 0, 1}, "", {}, options, failpoints_, deadline);
  }
  // Expects that the error names the publisher, and is no list of what this machine lacks.
  static void ExpectNamed(const std::string& error, const DyingPublisher& publisher) {
    EXPECT_THAT(error, AllOf(StartsWith("publisher " + publisher.endpoint), Not(HasSubstr("CUDA")),
                             Not(HasSubstr("no data channel"))));
  }

  Strike strike_;
  std::string forced_;  // the channel that is asked for by name
  FailPoints failpoints_;
};

// By channel and moment.
class WhileItsChannelIsTried : public DyingPublisherTest,
                               public ::testing::WithParamInterface<std::tuple<std::string, Moment>> {
 protected:
  static std::string channel() { return std::get<0>(GetParam()); }
  // The channel is the first that is tried. After it zmq would be.
  ChannelChooser Choosing(std::function<void()> strike) {
    strike_.now = std::move(strike);
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<StrikingTransport>(channel(), std::get<1>(GetParam()), strike_));
    if (channel() != "zmq") transports.push_back(MakeZmqTransport());
    return ChannelChooser(std::move(transports));
  }
};

TEST_P(WhileItsChannelIsTried, OneThatIsKilledIsGone) {
  DyingPublisher publisher(channel() + ",zmq");
  ChannelChooser channels = Choosing([&] { publisher.Kill(); });
  ExpectNamed(ErrorOf([&] { Open({publisher.endpoint}, channels); }, ErrorCode::kUnavailable), publisher);
}

TEST_P(WhileItsChannelIsTried, OneThatIsFrozenIsGoneAndItsChannelIsTriedAnewOnceItGoesOn) {
  const DyingPublisher publisher(channel());
  ChannelChooser channels = Choosing([&] { publisher.Freeze(); });
  ExpectNamed(ErrorOf([&] { Open({publisher.endpoint}, channels); }, ErrorCode::kUnavailable), publisher);
  publisher.Thaw();
  strike_ = {.now = [] {}};
  EXPECT_EQ(Open({publisher.endpoint}, channels)->stats().channel.name, channel());
}

std::vector<std::string> BetweenProcesses() {
  std::vector<std::string> channels = ChannelsHere();
  std::erase_if(channels, StaysInTheProcess);
  return channels;
}

INSTANTIATE_TEST_SUITE_P(EachChannel, WhileItsChannelIsTried,
                         ::testing::Combine(::testing::ValuesIn(BetweenProcesses()),
                                            ::testing::Values(Moment::kConnecting, Moment::kMeasuring)),
                         [](const auto& each) {
                           return std::get<0>(each.param) +
                                  (std::get<1>(each.param) == Moment::kConnecting ? "_Connecting" : "_Measuring");
                         });

// Whether the channel was asked for by name makes no difference.
TEST_F(DyingPublisherTest, OneThatFreezesWhileItIsMeasuredIsWaitedForNoLongerThanTheDeadline) {
  for (const std::string& channel : BetweenProcesses()) {
    const DyingPublisher publisher(channel);
    strike_ = {.now = [&] { publisher.Freeze(); }};
    forced_ = channel;
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<StrikingTransport>(channel, Moment::kConnecting, strike_));
    ChannelChooser channels(std::move(transports));
    const auto open = [&] { Open({publisher.endpoint}, channels, Deadline::After(kSilence / 2)); };
    ExpectNamed(ErrorOf(open, ErrorCode::kDeadlineExceeded), publisher);
  }
}

TEST_F(DyingPublisherTest, BeforeItAnswersHello) {
  for (const char* ends : {"answer.hello=kill", "answer.hello=stop"}) {
    const DyingPublisher publisher("zmq", kWhole, ends);
    ChannelChooser channels;
    ExpectNamed(ErrorOf([&] { Open({publisher.endpoint}, channels); }, ErrorCode::kUnavailable), publisher);
    const auto hurried = [&] { Open({publisher.endpoint}, channels, Deadline::After(kShort)); };
    ExpectNamed(ErrorOf(hurried, ErrorCode::kDeadlineExceeded), publisher);
    const auto status = [&] { AskPublisherStatus(publisher.endpoint, {}, Deadline::After(kShort)); };
    ExpectNamed(ErrorOf(status, ErrorCode::kDeadlineExceeded), publisher);
  }
}

TEST_F(DyingPublisherTest, BetweenProbeAndSubscription) {
  for (const std::string& channel : BetweenProcesses()) {
    for (const bool killed : {true, false}) {
      DyingPublisher publisher(channel);
      ChannelChooser channels;
      const auto session = Open({publisher.endpoint}, channels);
      killed ? publisher.Kill() : publisher.Freeze();
      CollectingSink sink;
      const auto fetch = [&] { session->Fetch(SomeSchedule(false), {}, sink, Soon()); };
      ExpectNamed(ErrorOf(fetch, ErrorCode::kUnavailable), publisher);
    }
  }
}

TEST_F(DyingPublisherTest, WhileLayercastProbeMeasuresIt) {
  for (const char* ends : {"serve.probe=kill@3", "serve.probe=stop@3"}) {
    const DyingPublisher publisher("zmq", kWhole, ends);
    const auto probe = [&] { ProbePublisher(publisher.endpoint, {}, Soon()); };
    ExpectNamed(ErrorOf(probe, ErrorCode::kUnavailable), publisher);
  }
}

TEST_F(DyingPublisherTest, OfSeveralTheOneThatDiedIsNamed) {
  for (const bool first : {true, false}) {
    DyingPublisher one("zmq", {"0", "2"});
    DyingPublisher other("zmq", {"1", "2"});
    strike_ = {.now = [&] { (first ? one : other).Kill(); }};
    // Each publisher is connected to once to be measured, and once more: the third time is the other's first.
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(std::make_unique<StrikingTransport>("zmq", Moment::kConnecting, strike_, 3));
    ChannelChooser channels(std::move(transports));
    const auto take = [&] {
      CollectingSink sink;
      Open({one.endpoint, other.endpoint}, channels)->Fetch(SomeSchedule(false), {}, sink, Soon());
    };
    ExpectNamed(ErrorOf(take, ErrorCode::kUnavailable), first ? one : other);
  }
}

}  // namespace
}  // namespace layercast::testing
