// The publisher's half of the protocol, without a socket.
#include "src/session/offer/version_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::uint32_t TensorsIn(const wire::Message& message) {
  const auto* const ready = std::get_if<wire::TensorsReady>(&message);
  return ready == nullptr ? 0 : static_cast<std::uint32_t>(ready->tensors.size());
}

class VersionDeskTest : public ::testing::Test {
 protected:
  using Channels = std::function<std::vector<wire::ChannelAddress>(const OfferedVersion&)>;

  // A desk that offers the version.
  std::unique_ptr<VersionDesk> MakeDesk(Channels channels, std::function<double()> core_seconds,
                                        DeskOptions options = {.name = "publisher"}) {
    auto desk = std::make_unique<VersionDesk>(
        std::move(options),
        VersionDesk::Parts{
            .context = {pool_, failpoints_, outbox_, memory_, nullptr, {}, asked_, nullptr, take_offer_ids_},
            .channels = std::move(channels),
            .core_seconds = std::move(core_seconds)});
    desk->Add(version_);
    return desk;
  }
  std::unique_ptr<VersionDesk> MakeDesk(DeskOptions options = {.name = "publisher"}) {
    return MakeDesk([](const OfferedVersion&) { return std::vector<wire::ChannelAddress>(); }, [] { return 0.0; },
                    std::move(options));
  }
  // What each was told since, that it was refused with.
  std::map<std::string, std::string> Refusals() {
    std::map<std::string, std::string> refusals;
    for (const auto& [key, message] : outbox_.TakeAll()) {
      if (const auto* refused = std::get_if<wire::Refused>(&message)) refusals[key.routing_id] = refused->message;
    }
    return refusals;
  }
  static bool IsReleased(const OfferedVersion& version) {
    return version.WaitReleased(Deadline::After(std::chrono::milliseconds(0)));
  }

  WorkerPool pool_{1};
  FailPoints failpoints_;
  AskedSchedules asked_;
  const std::function<std::uint64_t(std::uint64_t)> take_offer_ids_ = [](std::uint64_t) { return std::uint64_t{2}; };
  Outbox outbox_;
  HostMemory memory_;
  const std::shared_ptr<OfferedVersion> version_ =
      std::make_shared<OfferedVersion>(SomeWeights().ToManifest(), Offer{.id = 1, .tensors = {}}, false);
  const SessionKey key_{"receiver", 1};
};

// The trainer withdraws whenever it likes, also while a receiver is being welcomed: that one either reads the version
// until it is done, or never gets it.
TEST_F(VersionDeskTest, AVersionThatIsWithdrawnWhileAReceiverIsWelcomedIsNotReleasedUnderIt) {
  VersionDesk* welcoming = nullptr;
  bool released = false;
  const auto withdraw = [&](const OfferedVersion&) {
    welcoming->Withdraw(version_);
    released = IsReleased(*version_);
    return std::vector<wire::ChannelAddress>();
  };
  const auto desk = MakeDesk(withdraw, [] { return 0.0; });
  welcoming = desk.get();
  const std::vector<wire::Message> answers = desk->Take(key_, wire::Hello{});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(answers.front()));
  EXPECT_FALSE(released);
  desk->Take(key_, wire::Bye{});
  EXPECT_TRUE(IsReleased(*version_));
}

TEST_F(VersionDeskTest, SaysWhatServingCostSinceTheSessionBeganAndNeverLessThanNothing) {
  double core_seconds = 1;
  const auto desk =
      MakeDesk([](const OfferedVersion&) { return std::vector<wire::ChannelAddress>(); }, [&] { return core_seconds; });
  desk->Take(key_, wire::Hello{});
  const auto asked = [&] {
    const std::vector<wire::Message> answers = desk->Take(key_, wire::CostRequest{});
    return std::get<wire::ServingCost>(answers.at(0)).core_us;
  };
  core_seconds = 1.5;
  EXPECT_EQ(asked(), 500'000U);
  core_seconds = 0.5;  // a channel's thread has ended
  EXPECT_EQ(asked(), 0U);
}

TEST_F(VersionDeskTest, WhoHasASessionIsToldWhenThePublisherEnds) {
  const auto desk = MakeDesk();
  EXPECT_THAT(desk->LastWords(), IsEmpty());
  desk->Take(key_, wire::Hello{});
  const auto words = desk->LastWords();
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words.front().first, key_);
  EXPECT_EQ(std::get<wire::Refused>(words.front().second).message, "the publisher has ended");
}

TEST_F(VersionDeskTest, WhoReadsAVersionThatWasWithdrawnIsRefusedInTheEnd) {
  const auto desk = MakeDesk({.name = "publisher", .eviction_time = std::chrono::milliseconds(0)});
  desk->Take(key_, wire::Hello{});
  desk->Sweep();
  EXPECT_THAT(Refusals(), IsEmpty());  // it is offered
  desk->Withdraw(version_);
  while (version_->RetiredFor() == std::chrono::milliseconds(0)) std::this_thread::yield();
  desk->Sweep();
  EXPECT_THAT(Refusals(),
              UnorderedElementsAre(Pair(
                  "receiver", AllOf(HasSubstr("version " + version_->manifest().version().ToString() + " is evicted"),
                                    HasSubstr("it was withdrawn more than 0 ms ago"), HasSubstr("offered: none")))));
  EXPECT_TRUE(IsReleased(*version_));
}

TEST_F(VersionDeskTest, WhoReadsAVersionWhoseMemoryIsNeededIsRefused) {
  const auto desk = MakeDesk();
  desk->Take(key_, wire::Hello{});
  desk->Withdraw(version_);
  desk->Sweep();
  EXPECT_THAT(Refusals(), IsEmpty());
  version_->Expire();
  desk->Sweep();
  EXPECT_THAT(Refusals(),
              UnorderedElementsAre(Pair("receiver", HasSubstr("is evicted: its memory is needed for newer ones"))));
  EXPECT_TRUE(IsReleased(*version_));
}

TEST_F(VersionDeskTest, OneConnectionHasAFewSessionsAndThoseThatEndedCountNoMore) {
  const auto desk = MakeDesk();
  const auto answer = [&](std::uint64_t session) { return desk->Take({"receiver", session}, wire::Hello{}).at(0); };
  for (std::uint64_t session = 1; session <= 4; ++session) {
    EXPECT_TRUE(std::holds_alternative<wire::Welcome>(answer(session)));
  }
  EXPECT_THAT(std::get<wire::Refused>(answer(5)).message, HasSubstr("this connection has 4 sessions"));
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(desk->Take({"another", 1}, wire::Hello{}).at(0)));
  desk->Take({"receiver", 2}, wire::Bye{});
  EXPECT_TRUE(std::holds_alternative<wire::Welcome>(answer(6)));
}

TEST_F(VersionDeskTest, AConnectionThatIsEndedLosesItsSessionsAndNobodyElseDoes) {
  const auto desk = MakeDesk();
  desk->Take({"receiver", 1}, wire::Hello{});
  desk->Take({"receiver", 2}, wire::Hello{});
  desk->Take({"receiver and more", 1}, wire::Hello{});
  desk->DropBarred("receiver");
  EXPECT_EQ(version_->readers(), 1);
}

TEST_F(VersionDeskTest, NamesThatCannotBePrintedAreRefused) {
  const auto desk = MakeDesk();
  const auto refusal = [&](const std::function<void(wire::Hello&)>& change) {
    wire::Hello hello;
    change(hello);
    return std::get<wire::Refused>(desk->Take(key_, hello).at(0)).message;
  };
  EXPECT_THAT(refusal([](wire::Hello& hello) { hello.engine = "\x1b[31mred"; }),
              HasSubstr("engine '\\x1b[31mred': expected UTF-8 without control characters"));
  EXPECT_THAT(refusal([](wire::Hello& hello) { hello.lineage = "\xff"; }),
              HasSubstr("lineage '\\xff': expected UTF-8"));
  EXPECT_THAT(refusal([](wire::Hello& hello) { hello.host.user = std::string(1025, 'u'); }),
              HasSubstr("expected at most 1024 bytes, got 1025"));
  desk->Take(key_, wire::Hello{});
  wire::Subscribe subscribe;
  subscribe.relay_endpoint = "tcp://a\nb:1";
  EXPECT_THAT(std::get<wire::Refused>(desk->Take(key_, subscribe).at(0)).message, HasSubstr("relay 'tcp://a\\x0ab:1'"));
}

// A stream begins when all ranks of an engine have asked for it.
class DeskOfAStreamTest : public VersionDeskTest {
 protected:
  std::unique_ptr<VersionDesk> MakeStreamDesk(std::chrono::milliseconds ranks_within) {
    return MakeDeskOf(std::make_shared<OfferedVersion>(
                          Manifest::OfSpecs("run", 7, weights_.ToManifest().specs()),
                          [this](std::span<const std::string>) { return weights_.Stream(); }, false),
                      ranks_within);
  }
  std::unique_ptr<VersionDesk> MakeDeskOf(const std::shared_ptr<OfferedVersion>& stream,
                                          std::chrono::milliseconds ranks_within = std::chrono::hours(1)) {
    return MakeDeskOf(stream, {.name = "publisher", .ranks_within = ranks_within});
  }
  std::unique_ptr<VersionDesk> MakeDeskOf(const std::shared_ptr<OfferedVersion>& stream, DeskOptions options) {
    auto desk = MakeDesk(std::move(options));
    desk->Withdraw(version_);
    desk->Add(stream);
    return desk;
  }
  static SessionKey KeyOf(std::uint32_t rank) { return {"rank " + std::to_string(rank), 1}; }
  static void Greet(VersionDesk& desk, std::uint32_t rank, std::uint32_t ranks = 3) {
    Greet(desk, KeyOf(rank), rank, ranks);
  }
  static void Greet(VersionDesk& desk, const SessionKey& key, std::uint32_t rank, std::uint32_t ranks) {
    wire::Hello hello;
    hello.engine = "engine";
    hello.attempt = 1;
    hello.rank = rank;
    hello.ranks = ranks;
    ASSERT_TRUE(std::holds_alternative<wire::Welcome>(desk.Take(key, hello).at(0)));
  }
  static void Ask(VersionDesk& desk, std::uint32_t rank, const Schedule& schedule = SomeSchedule(true)) {
    wire::Subscribe subscribe;
    subscribe.schedule_digest = schedule.digest();
    subscribe.schedule = schedule.Encode();
    EXPECT_TRUE(desk.Take(KeyOf(rank), subscribe).empty());
  }

  const Weights weights_ = SomeWeights();
};

TEST_F(DeskOfAStreamTest, RanksThatWaitForOneThatLeavesAreToldSo) {
  const auto desk = MakeStreamDesk(std::chrono::hours(1));
  for (const std::uint32_t rank : {0, 1, 2}) Greet(*desk, rank);
  Ask(*desk, 0);
  Ask(*desk, 1);
  desk->Sweep();
  EXPECT_THAT(Refusals(), IsEmpty());
  desk->Take(KeyOf(2), wire::Bye{});  // its plan did not fit, say
  EXPECT_THAT(Refusals(), UnorderedElementsAre(Pair("rank 0", HasSubstr("rank 2 of 'engine' has left")),
                                               Pair("rank 1", HasSubstr("has left before the stream began"))));
}

// A rank may open a session to stage and another one to write, each by a connection of its own.
TEST_F(DeskOfAStreamTest, ARankThatEndsItsEarlierSessionLateHasNotLeft) {
  const auto desk = MakeStreamDesk(std::chrono::hours(1));
  for (const std::uint32_t rank : {0, 1, 2}) Greet(*desk, rank);
  const SessionKey earlier{"rank 2, while it staged", 1};
  Greet(*desk, earlier, 2, 3);
  Ask(*desk, 0);
  desk->Take(earlier, wire::Bye{});
  EXPECT_THAT(Refusals(), IsEmpty());
}

TEST_F(DeskOfAStreamTest, RanksDoNotWaitForeverForOneThatNeverComes) {
  const auto desk = MakeStreamDesk(std::chrono::milliseconds(0));
  Greet(*desk, 0);
  Ask(*desk, 0);
  Greet(*desk, 1);
  Ask(*desk, 1);
  desk->Sweep();
  EXPECT_THAT(Refusals(), UnorderedElementsAre(Pair("rank 0", HasSubstr("expected 3 of them, got none but 0, 1")),
                                               Pair("rank 1", HasSubstr("has left before the stream began"))));
}

TEST_F(DeskOfAStreamTest, ARankThatIsHereAndHasNotAskedYetIsWaitedFor) {
  const auto desk = MakeStreamDesk(std::chrono::milliseconds(0));
  for (const std::uint32_t rank : {0, 1, 2}) Greet(*desk, rank);
  Ask(*desk, 0);
  Ask(*desk, 1);
  desk->Sweep();
  EXPECT_THAT(Refusals(), IsEmpty());
}

// What it walks may be freed once it is released.
TEST_F(DeskOfAStreamTest, AStreamIsNotReleasedWhileItsWalkReadsTheSource) {
  std::latch reading(1), go_on(1);
  const auto next = [&]() -> std::optional<NamedTensor> {
    reading.count_down();
    go_on.wait();
    return std::nullopt;
  };
  const auto stream = std::make_shared<OfferedVersion>(
      Manifest::OfSpecs("run", 7, weights_.ToManifest().specs()),
      [&](std::span<const std::string>) { return MakeWeightsIterator(next); }, false);
  const auto desk = MakeDeskOf(stream);
  Greet(*desk, 0, 1);
  Ask(*desk, 0);
  reading.wait();
  desk->Withdraw(stream);
  desk->Take(KeyOf(0), wire::Bye{});
  EXPECT_EQ(stream->readers(), 0);
  EXPECT_FALSE(IsReleased(*stream));
  go_on.count_down();
  EXPECT_TRUE(stream->WaitReleased(Soon()));
}

TEST_F(DeskOfAStreamTest, SmallTensorsFillTheWindowByTheirNumber) {
  constexpr std::uint32_t kTensors = 1000, kMostUnderWay = 256;
  Weights many;
  for (std::uint32_t i = 0; i < kTensors; ++i) many.AddRandom({std::to_string(i), DType::kF32, {1}}, i);
  const auto desk = MakeDeskOf(std::make_shared<OfferedVersion>(
      Manifest::OfSpecs("run", 7, many.ToManifest().specs()),
      [&](std::span<const std::string>) { return many.Stream(); }, false));
  Schedule schedule;
  schedule.Add(std::vector<Region>{{.tensor = 0, .offset = 0, .row_bytes = 4, .rows = 1, .stride = 0}});
  Greet(*desk, 0, 1);
  Ask(*desk, 0, schedule);
  std::uint32_t came = 0, done = 0;
  bool ended = false;
  for (const Deadline deadline = Soon(); !ended && !deadline.Passed(); std::this_thread::yield()) {
    for (const auto& [key, message] : outbox_.TakeAll()) {
      came += TensorsIn(message);
      ended = ended || std::holds_alternative<wire::StreamEnd>(message);
    }
    ASSERT_LE(came - done, kMostUnderWay);
    if (came - done == kMostUnderWay || came == kTensors) desk->Take(KeyOf(0), wire::TensorDone{++done});
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(came, kTensors);
}

// Engines of one rank, which take nothing of what comes.
class DeskOfWalksTest : public DeskOfAStreamTest {
 protected:
  static constexpr std::uint32_t kTensors = 250;  // of 4 bytes

  DeskOfWalksTest() {
    for (std::uint32_t i = 0; i < kTensors; ++i) many_.AddRandom({std::to_string(i), DType::kF32, {1}}, i);
  }
  std::unique_ptr<VersionDesk> MakeDeskOfMany(const DeskOptions& options) {
    return MakeDeskOf(std::make_shared<OfferedVersion>(
                          Manifest::OfSpecs("run", 7, many_.ToManifest().specs()),
                          [this](std::span<const std::string>) { return many_.Stream(); }, false),
                      options);
  }
  static SessionKey KeyOf(const std::string& engine) { return {engine, 1}; }
  static void Begin(VersionDesk& desk, const std::string& engine) {
    wire::Hello hello;
    hello.engine = engine;
    desk.Take(KeyOf(engine), hello);
    Schedule schedule;
    schedule.Add(std::vector<Region>{{.tensor = 0, .offset = 0, .row_bytes = 4, .rows = 1, .stride = 0}});
    EXPECT_TRUE(desk.Take(KeyOf(engine), wire::Subscribe{schedule.digest(), schedule.Encode(), {}}).empty());
  }
  // How many tensors that engine has been told of, once there are as many.
  std::uint32_t Await(VersionDesk& desk, const std::string& engine, std::uint32_t tensors) {
    for (const Deadline deadline = Soon(); came_[engine] < tensors && !deadline.Passed(); std::this_thread::yield()) {
      desk.Sweep();
      for (const auto& [key, message] : outbox_.TakeAll()) came_[key.routing_id] += TensorsIn(message);
    }
    return came_[engine];
  }

  std::map<std::string, std::uint32_t> came_;

 private:
  Weights many_;
};

TEST_F(DeskOfWalksTest, WalksShareTheWindow) {
  const auto desk = MakeDeskOfMany({.name = "publisher", .stream_window_bytes = 240});
  Begin(*desk, "first");
  EXPECT_EQ(Await(*desk, "first", 60), 60U);
  Begin(*desk, "second");
  EXPECT_EQ(Await(*desk, "second", 30), 30U);
  Begin(*desk, "third");
  EXPECT_EQ(Await(*desk, "third", 20), 20U);
  desk->Take(KeyOf("second"), wire::TensorDone{1});
  EXPECT_EQ(Await(*desk, "second", 30), 30U);  // it has more than its share now
  for (std::uint32_t i = 1; i <= 50; ++i) desk->Take(KeyOf("first"), wire::TensorDone{i});
  EXPECT_EQ(Await(*desk, "first", 70), 70U);
  EXPECT_THAT(came_, UnorderedElementsAre(Pair("first", 70), Pair("second", 30), Pair("third", 20)));
}

TEST_F(DeskOfWalksTest, WalksBeyondTheMostTakeTurns) {
  const auto desk = MakeDeskOfMany({.name = "publisher", .stream_window_bytes = 40, .max_walks = 2});
  Begin(*desk, "first");
  EXPECT_EQ(Await(*desk, "first", 10), 10U);
  Begin(*desk, "third");
  Begin(*desk, "second");
  EXPECT_EQ(Await(*desk, "third", 5), 5U);
  desk->Sweep();
  EXPECT_EQ(came_["second"], 0U);
  desk->Take(KeyOf("first"), wire::Bye{});
  EXPECT_EQ(Await(*desk, "second", 5), 5U);
}

// Under a commit policy that receives in the commit, ranks look at a version, let go of it and come again.
TEST_F(DeskOfAStreamTest, ARankMayComeAgainWhereNobodyWaits) {
  const auto desk = MakeStreamDesk(std::chrono::hours(1));
  for (const std::uint32_t rank : {0, 1, 2}) Greet(*desk, rank);
  desk->Take(KeyOf(2), wire::Bye{});
  Greet(*desk, 2);
  Ask(*desk, 0);
  Ask(*desk, 1);
  EXPECT_THAT(Refusals(), IsEmpty());
}

}  // namespace
}  // namespace layercast::testing
