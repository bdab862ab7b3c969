// Which data channel a session takes, and what is said of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "src/session/choose/channel_chooser.h"
#include "src/session/choose/channel_probe.h"
#include "src/session/fetch/slow_channel.h"
#include "src/session/link/my_host.h"
#include "src/transport/all/transports.h"
#include "tests/support/error_of.h"
#include "tests/support/session/other_transport.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Le;

ChannelTrial Copying(const std::string& name, double gb_per_s) {
  return {.name = name, .usable = true, .attaches = false, .gb_per_s = gb_per_s};
}
const ExpectAlive kIsThere = [](Deadline) {};

ChannelTrial Unusable(const std::string& name, const std::string& reason) {
  return {.name = name, .usable = false, .attaches = false, .gb_per_s = 0, .reason = reason};
}

TEST(PickChannel, TakesTheFastest) {
  const std::vector<ChannelTrial> trials = {Unusable("shm", "another host"), Copying("ucx", 2), Copying("zmq", 3)};
  ASSERT_EQ(PickChannel(trials), 2U);
  EXPECT_EQ(WhyPicked(trials, 2), "the fastest: ucx 2 GB/s, zmq 3 GB/s");
}

TEST(PickChannel, ATenthIsNoDifference) {
  EXPECT_EQ(PickChannel({Copying("ucx", 3.0), Copying("zmq", 3.2)}), 0U);
  EXPECT_EQ(PickChannel({Copying("ucx", 3.0), Copying("zmq", 3.4)}), 1U);
}

TEST(PickChannel, NothingIsFasterThanToAttach) {
  ChannelTrial attaching = Copying("shm", 5);
  attaching.attaches = true;
  EXPECT_EQ(PickChannel({Copying("ucx", 9), attaching}), 1U);
  EXPECT_THAT(WhyPicked({attaching}, 0), HasSubstr("the publisher's own memory"));
}

TEST(PickChannel, WhatIsTakenOnlyByNameIsNotPicked) {
  ChannelTrial by_name = Copying("ucx", 9);
  by_name.by_name = true;
  by_name.reason = "only when it is asked for by name";
  const std::vector<ChannelTrial> trials = {by_name, Copying("zmq", 3)};
  ASSERT_EQ(PickChannel(trials), 1U);
  EXPECT_EQ(WhyPicked(trials, 1), "the only one: ucx: only when it is asked for by name");
  by_name.reason.clear();  // as `layercast probe` has tried it
  EXPECT_EQ(WhyPicked({by_name, Copying("zmq", 3)}, 1), "the only one: ucx: only when it is asked for by name");
}

TEST(PickChannel, TheOnlyOneSaysWhatIsWrongWithTheOthers) {
  const std::vector<ChannelTrial> trials = {Unusable("shm", "another host"), Copying("zmq", 3)};
  EXPECT_EQ(WhyPicked(trials, *PickChannel(trials)), "the only one: shm: another host");
  EXPECT_EQ(PickChannel({Unusable("shm", "another host")}), std::nullopt);
}

TEST(PickChannel, OnlyWhatTheEndsHaveNotGotIsUnsupported) {
  const ChannelTrial absent = Unusable("cuda_ipc", "no CUDA driver");
  ChannelTrial failed = Unusable("zmq", "connection refused");
  failed.failure = ErrorCode::kUnavailable;
  ChannelTrial of_other_version = Unusable("ucx", "it speaks no version of ours");
  of_other_version.failure = ErrorCode::kUnsupported;
  const auto why_none = [](const std::vector<ChannelTrial>& trials) {
    const Error none = WhyNone(trials);
    return std::pair(none.code(), std::string(none.what()));
  };
  const std::string begin = "no data channel to it works: ";
  EXPECT_EQ(why_none({absent}), std::pair(ErrorCode::kUnsupported, begin + "cuda_ipc: no CUDA driver"));
  EXPECT_EQ(why_none({absent, of_other_version}),
            std::pair(ErrorCode::kUnsupported, begin + "ucx: it speaks no version of ours"));
  EXPECT_EQ(why_none({absent, of_other_version, failed}),
            std::pair(ErrorCode::kUnavailable, begin + "ucx: it speaks no version of ours; zmq: connection refused"));
}

class ChannelChooserTest : public SessionTest {};

TEST_F(ChannelChooserTest, ASessionSaysWhatItsChannelCanDoAndWhyItWasChosen) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  const ChannelUse chosen = Open(*service)->stats().channel;
  EXPECT_EQ(chosen.name, "inproc");
  EXPECT_THAT(chosen.reason, HasSubstr("own memory"));
  EXPECT_GT(chosen.probed_gb_per_s, 0);
  const ChannelUse forced = Open(*service, "zmq")->stats().channel;
  EXPECT_EQ(forced.name, "zmq");
  EXPECT_EQ(forced.reason, "it was asked for");
  EXPECT_GT(forced.probed_gb_per_s, 0);
}

TEST_F(ChannelChooserTest, AChannelThatIsNotThereIsAnErrorNotAnotherChannel) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  EXPECT_THAT(ErrorOf([&] { Open(*service, "pigeon"); }),
              HasSubstr("this build has no channel 'pigeon', it has inproc, shm"));
}

TEST_F(ChannelChooserTest, APublisherOffersTheChannelsThatItIsToldTo) {
  OfferServiceOptions options;
  options.endpoint = "tcp://127.0.0.1:0";
  options.name = "publisher";
  options.channels = {"zmq"};
  OfferService service(options, pool_, publisher_failpoints_);
  const PublishedWeights published(service, SomeWeights(), "run", 3);
  const ChannelUse chosen = Open(service)->stats().channel;
  EXPECT_EQ(chosen.name, "zmq");
  EXPECT_THAT(chosen.reason, HasSubstr("shm: the publisher does not offer it"));
  EXPECT_THAT(ErrorOf([&] { Open(service, "shm"); }, ErrorCode::kUnsupported),
              HasSubstr("shm: the publisher does not offer it"));
  options.channels = {"zmq", "pigeon"};
  EXPECT_THAT(ErrorOf([&] { OfferService(options, pool_, publisher_failpoints_); }), HasSubstr("no channel 'pigeon'"));
}

// Attaches, like inproc, and says that all is well; the bytes are others.
class LyingEnd final : public FetchingEnd {
 public:
  explicit LyingEnd(std::unique_ptr<FetchingEnd> honest) : honest_(std::move(honest)) {}
  bool attaches() const override { return true; }
  void Submit(const ChunkRequest& request) override { honest_->Submit(request); }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    std::optional<ChunkCompletion> completion = honest_->Poll(deadline);
    if (!completion) return completion;
    for (RegionView& view : completion->views) {
      lies_.emplace_back(view.num_bytes(), std::byte{7});
      view = {.base = lies_.back().data(), .row_bytes = view.row_bytes, .rows = view.rows, .stride = view.row_bytes};
    }
    return completion;
  }
  void Close() noexcept override { honest_->Close(); }

 private:
  const std::unique_ptr<FetchingEnd> honest_;
  std::vector<std::vector<std::byte>> lies_;
};

class LyingTransport final : public OtherTransport {
 public:
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    return std::make_unique<LyingEnd>(honest_->Connect(address, deadline));
  }
};

// Its publisher freezes once it has been measured.
class FreezingTransport final : public OtherTransport {
 public:
  explicit FreezingTransport(std::vector<std::chrono::milliseconds>& waits) : waits_(waits) {}
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    waits_.push_back(deadline.Remaining());
    if (waits_.size() == 1) return honest_->Connect(address, deadline);
    throw Error(ErrorCode::kDeadlineExceeded, "frozen");
  }

 private:
  std::vector<std::chrono::milliseconds>& waits_;
};

TEST_F(ChannelChooserTest, AChannelThatLiesIsNotTaken) {
  const auto service = MakeService();
  const PublishedWeights published(*service, SomeWeights(), "run", 3);
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<LyingTransport>());
  transports.push_back(std::move(TransportsNamed(std::vector<std::string>{"zmq"}).front()));
  ChannelChooser channels(std::move(transports));
  FetchOptions options;
  options.channels = &channels;
  const auto open = [&] {
    return FetchSession::Open(std::vector{service->endpoint()}, {"engine", 1, 0, 1}, "", {}, options,
                              receiver_failpoints_, Soon())
        ->stats()
        .channel;
  };
  const ChannelUse chosen = open();
  EXPECT_EQ(chosen.name, "zmq");
  EXPECT_THAT(chosen.reason, HasSubstr("of the probe arrived with other bytes"));
  options.channel = "inproc";
  EXPECT_THAT(ErrorOf(open), HasSubstr("of the probe arrived with other bytes"));
}

// A publisher's end with nothing but the probe.
class ProbedEndTest : public ChannelChooserTest {
 protected:
  ProbedEndTest() { end_->Add(probe_.offer()); }
  wire::Welcome Welcome() const {
    wire::Welcome welcome;
    welcome.host = MyHost();
    welcome.channels = {{"inproc", end_->address()}};
    return welcome;
  }

  HostMemory memory_;
  const ProbeOffer probe_{memory_};
  const std::unique_ptr<OfferingEnd> end_ = TransportsNamed(std::vector<std::string>{"inproc"}).front()->Offering({});
};

TEST_F(ProbedEndTest, TheProbeIsFetchedOnceForEachPublisher) {
  const double measured = channels_.Choose(Welcome(), kIsThere, "", Soon()).probed_gb_per_s;
  EXPECT_GT(measured, 0);
  end_->Remove(kProbeOffer);  // now it cannot be fetched
  EXPECT_EQ(channels_.Choose(Welcome(), kIsThere, "", Soon()).probed_gb_per_s, measured);
  EXPECT_EQ(channels_.TryAll(Welcome(), kIsThere, Soon()).front().gb_per_s, 0);
}

TEST_F(ProbedEndTest, APublisherThatFreezesOnceItIsMeasuredIsNotWaitedForUntilTheSessionsDeadline) {
  std::vector<std::chrono::milliseconds> waits;
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<FreezingTransport>(waits));
  ChannelChooser channels(std::move(transports));
  EXPECT_THAT(ErrorOf([&] { channels.Choose(Welcome(), kIsThere, "inproc", Deadline::After(std::chrono::hours(1))); }),
              HasSubstr("frozen"));
  EXPECT_EQ(waits.size(), 2U);
  EXPECT_THAT(waits, Each(Le(std::chrono::seconds(5))));
}

// Asks to stop once it is connected; no byte of it ever comes.
class StoppingTransport final : public OtherTransport {
 public:
  explicit StoppingTransport(std::stop_source& stop) : stop_(stop) {}
  std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const override {
    if (stop_.stop_requested()) return honest_->Connect(address, deadline);
    stop_.request_stop();
    return std::make_unique<SilentEnd>();
  }

 private:
  class SilentEnd final : public FetchingEnd {
   public:
    bool attaches() const override { return false; }
    void Submit(const ChunkRequest& /*request*/) override {}
    std::optional<ChunkCompletion> Poll(Deadline deadline) override {
      EXPECT_TRUE(deadline.Passed()) << "it would be waited for";
      return std::nullopt;
    }
    void Close() noexcept override {}
  };

  std::stop_source& stop_;
};

TEST_F(ProbedEndTest, AMeasurementThatIsGivenUpIsNotRemembered) {
  std::stop_source stop;
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::make_unique<StoppingTransport>(stop));
  ChannelChooser channels(std::move(transports));
  const Deadline deadline = Deadline::After(std::chrono::hours(1));
  EXPECT_THAT(ErrorOf([&] { channels.Choose(Welcome(), kIsThere, "", deadline.OrStop(stop.get_token())); },
                      ErrorCode::kCancelled),
              HasSubstr("measuring channel inproc: this attempt was given up"));
  EXPECT_GT(channels.Choose(Welcome(), kIsThere, "", deadline).probed_gb_per_s, 0);
}

// A link so slow that by the deadline no more than `chunks` have come.
class SlowEnd final : public FetchingEnd {
 public:
  SlowEnd(std::unique_ptr<FetchingEnd> fast, int chunks) : fast_(std::move(fast)), chunks_(chunks) {}
  bool attaches() const override { return false; }
  void Submit(const ChunkRequest& request) override { fast_->Submit(request); }
  std::optional<ChunkCompletion> Poll(Deadline deadline) override {
    return chunks_-- > 0 ? fast_->Poll(deadline) : std::nullopt;
  }
  void Close() noexcept override { closed_ = true; }
  bool closed() const { return closed_; }

 private:
  const std::unique_ptr<FetchingEnd> fast_;
  int chunks_;
  bool closed_ = false;
};

TEST_F(ProbedEndTest, WhatCameOfASlowLinksProbeIsItsRate) {
  const auto transport = std::move(TransportsNamed(std::vector<std::string>{"inproc"}).front());
  SlowEnd slow(transport->Connect(end_->address(), Soon()), 3);
  EXPECT_GT(MeasureChannel(slow, memory_, Soon()), 0);
  EXPECT_TRUE(slow.closed()) << "chunks are under way to memory that is gone";
  SlowEnd dead(transport->Connect(end_->address(), Soon()), 0);
  EXPECT_THAT(ErrorOf([&] { MeasureChannel(dead, memory_, Soon()); }), HasSubstr("nothing of the probe arrived"));
  EXPECT_TRUE(dead.closed());
}

FetchStats Moved(std::uint64_t bytes, double receive_seconds, double verify_seconds) {
  FetchStats stats;
  stats.channel = {.name = "zmq", .lane = {}, .reason = {}, .probed_gb_per_s = 3};
  stats.bytes = bytes;
  stats.regions = bytes >> 20;
  stats.receive_seconds = receive_seconds;
  stats.verify_seconds = verify_seconds;
  return stats;
}

TEST(SlowChannel, ARateFarUnderTheProbesIsAWarningWithTheLikelyCause) {
  constexpr std::uint64_t kBytes = 1'000'000'000;
  const auto warning = [](const FetchStats& stats) { return SlowChannelWarning(stats, PublishMode::kSnapshot); };
  EXPECT_EQ(warning(Moved(kBytes, 0.9, 0.1)), std::nullopt);
  EXPECT_EQ(warning(Moved(1'000'000, 0.9, 0.1)), std::nullopt) << "too small to judge";
  EXPECT_THAT(
      warning(Moved(kBytes, 1.9, 0.1)).value(),
      AllOf(HasSubstr("zmq moved 0.5 GB/s, and 3 GB/s when it was chosen"), HasSubstr("waiting for the publisher")));
  EXPECT_THAT(SlowChannelWarning(Moved(kBytes, 1.9, 0.1), PublishMode::kStream).value(),
              HasSubstr("a stream is as fast as its trainer yields tensors"));
  EXPECT_THAT(warning(Moved(kBytes, 0.1, 1.9)).value(), HasSubstr("went into digests"));
  FetchStats small = Moved(kBytes, 1.9, 0.1);
  small.regions = kBytes / 100;
  EXPECT_THAT(warning(small).value(), HasSubstr("its pieces are small, 100 bytes on average"));
}

}  // namespace
}  // namespace layercast::testing
