// The publisher's half of the protocol, which receivers drive that say anything valid in any order: a million messages
// in a minute, since there are no sockets. It may refuse them; an honest receiver beside them is served, and all that
// was held for them is let go of.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/session/offer/version_desk.h"
#include "tests/fuzz/fuzz_inputs.h"
#include "tests/fuzz/hostile_words.h"
#include "tests/support/session/publishing.h"

namespace layercast::testing {
namespace {

constexpr std::size_t kReceivers = 12;
constexpr std::size_t kRound = 500;  // messages between two looks at what is served

class HostileDeskTest : public ::testing::Test {
 protected:
  HostileDeskTest() {
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) relayed_->Ready(chunk);  // of three
    desk_.emplace(DeskOptions{.name = "publisher", .max_sessions = 64},
                  VersionDesk::Parts{
                      .context = {pool_, failpoints_, outbox_, memory_, nullptr, {}, asked_, nullptr, take_offer_ids_},
                      .channels = [](const OfferedVersion&) { return std::vector<wire::ChannelAddress>(); },
                      .core_seconds = [] { return 0.0; }});
    Offer(std::make_shared<OfferedVersion>(relayed_, /*offer_id=*/3));
    PublishAnother(1);
  }

  void Offer(std::shared_ptr<OfferedVersion> version) {
    versions_.push_back(version);
    desk_->Add(std::move(version));
  }
  // A snapshot and a stream, of which either may be the newest.
  void PublishAnother(std::uint64_t step) {
    if (snapshot_) desk_->Withdraw(snapshot_);
    if (stream_) desk_->Withdraw(stream_);
    snapshot_ = Snapshot(step);
    stream_ = Stream(step);
    if (step % 2 == 0) Offer(stream_);
    Offer(snapshot_);
    if (step % 2 != 0) Offer(stream_);
  }

  std::shared_ptr<OfferedVersion> Snapshot(std::uint64_t step) {
    std::vector<ManifestEntry> entries;
    layercast::Offer offer{.id = next_offer_++, .tensors = {}};
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      entries.push_back({.spec = weights_.spec(i), .digest = DigestOf(weights_.bytes(i)), .amax = 1});
      offer.tensors.push_back({weights_.bytes(i).data(), weights_.bytes(i).size()});
    }
    return std::make_shared<OfferedVersion>(Manifest("run", step, std::move(entries)), offer, false);
  }
  std::shared_ptr<OfferedVersion> Stream(std::uint64_t step) {
    return std::make_shared<OfferedVersion>(
        Manifest::OfSpecs("walked", step, weights_.ToManifest().specs()),
        [this](std::span<const std::string>) { return weights_.Stream(); }, /*layer_order=*/false);
  }

  // What was put into the outbox, by who it is for.
  void Deliver() {
    for (auto& [key, message] : outbox_.TakeAll()) {
      if (key == honest_) heard_.push_back(std::move(message));
    }
  }
  // The next message to the honest receiver of one of these kinds. Others are passed over.
  template <typename Wanted>
  Wanted Await() {
    for (const Deadline deadline = Soon(); !deadline.Passed(); std::this_thread::yield()) {
      Deliver();
      while (!heard_.empty()) {
        const wire::Message message = std::move(heard_.front());
        heard_.pop_front();
        if (const auto* wanted = std::get_if<Wanted>(&message)) return *wanted;
        if (const auto* refused = std::get_if<wire::Refused>(&message)) {
          throw Error(refused->code, "the honest receiver was refused: " + refused->message);
        }
      }
    }
    throw Error(ErrorCode::kDeadlineExceeded, "the honest receiver waited in vain");
  }
  void Say(const wire::Message& message) {
    for (wire::Message& answer : desk_->Take(honest_, message)) heard_.push_back(std::move(answer));
  }

  void ExpectTheSnapshotIsServed() {
    heard_.clear();
    Say(wire::Hello{.engine = "honest",
                    .host = {},
                    .lineage = "run",
                    .step_known = true,
                    .step = snapshot_->manifest().version().step});
    EXPECT_EQ(Await<wire::Welcome>().manifest, snapshot_->encoded_manifest());
    Say(wire::Subscribe{schedule_.digest(), schedule_.Encode(), {}, false, "", 0});
    std::vector<Digest> digests = Await<wire::Subscribed>().chunk_digests;
    while (digests.size() < schedule_.chunks().size()) {
      const std::vector<Digest> more = Await<wire::MoreDigests>().chunk_digests;
      digests.insert(digests.end(), more.begin(), more.end());
    }
    EXPECT_EQ(digests, DigestsOf(schedule_, weights_));
    Say(wire::Ping{});
    Await<wire::Pong>();
    Say(wire::Bye{});
  }

  static std::string RoutingId(std::size_t receiver) { return "hostile-" + std::to_string(receiver); }

  // What one of many receivers, each with several sessions, says next; or what becomes of it.
  void Step(HostileWords& words) {
    const SessionKey key{RoutingId(words.Below(kReceivers)), words.Below(5)};
    switch (words.Below(32)) {
      case 0: return desk_->DropDeaf(key);
      case 1: return desk_->DropBarred(key.routing_id);
      case 2: return desk_->Sweep();
      case 3:
      case 4:
      case 5:
      case 6: {
        constexpr const char* kLineages[] = {"", "run", "walked", "relayed"};
        Take(key, words.Hello(kLineages[words.Below(std::size(kLineages))]));
        return Take(key, words.Subscribe());
      }
      case 7: {  // what a socket's owner makes of what is no message
        static_cast<void>(desk_->Refuse(key, Error(ErrorCode::kCorrupt, "no message")));
        return;
      }
      default: return Take(key, words.OfAReceiver());
    }
  }
  void Take(const SessionKey& key, wire::Message message) {
    for (const wire::Message& answer : desk_->Take(key, std::move(message))) {
      EXPECT_FALSE(IsABug(answer)) << std::get<wire::Refused>(answer).message;
      wire::Encode({.session = key.session, .message = answer});  // it can be said
    }
  }
  static bool IsABug(const wire::Message& answer) {
    const auto* const refused = std::get_if<wire::Refused>(&answer);
    return refused != nullptr && refused->code == ErrorCode::kInternal;
  }

  const Weights weights_ = SomeWeights();
  const Schedule schedule_ = SomeSchedule(true);  // which both modes take
  WorkerPool pool_{1};
  FailPoints failpoints_;
  AskedSchedules asked_;
  std::atomic<std::uint64_t> next_offer_{1};  // walks take some
  const std::function<std::uint64_t(std::uint64_t)> take_offer_ids_ = [this](std::uint64_t count) {
    return next_offer_.fetch_add(count);
  };
  Outbox outbox_;
  HostMemory memory_;
  const SessionKey honest_{"honest", 1};
  std::deque<wire::Message> heard_;
  const std::shared_ptr<RelayedChunks> relayed_ = std::make_shared<RelayedChunks>(schedule_, memory_);
  std::vector<std::shared_ptr<OfferedVersion>> versions_;  // all that ever were
  std::shared_ptr<OfferedVersion> snapshot_;
  std::shared_ptr<OfferedVersion> stream_;
  std::optional<VersionDesk> desk_;
};

TEST_F(HostileDeskTest, ServesTheHonestWhateverOthersSayAndLetsGoOfAllThatItHeldForThem) {
  HostileWords words(21, schedule_, DigestsOf(schedule_, weights_));
  const std::size_t messages = FuzzInputs(20'000);
  std::uint64_t step = 1;
  for (std::size_t said = 0; said < messages && !HasFailure(); ++said) {
    Step(words);
    if (said % kRound != 0) continue;
    ExpectTheSnapshotIsServed();
    if (words.OneIn(3)) PublishAnother(++step);
  }
  for (std::size_t one = 0; one < kReceivers; ++one) desk_->DropBarred(RoutingId(one));
  for (const Deadline deadline = Soon(); !deadline.Passed();) {
    desk_->Sweep();  // walks have a thread each, which notices
    Deliver();
    if (std::ranges::all_of(versions_, [](const auto& version) { return version->readers() == 0; })) break;
    std::this_thread::yield();
  }
  desk_->Withdraw(snapshot_);
  desk_->Withdraw(stream_);
  desk_->Withdraw(versions_.front());
  for (const auto& version : versions_) {
    EXPECT_TRUE(version->WaitReleased(Soon())) << version->manifest().version().ToString();
  }
}

}  // namespace
}  // namespace layercast::testing
