// What a peer says that speaks the protocol and means it ill: messages that are valid, in any order, with numbers that
// lie. Seeded. Used by the tests of hostile peers. Header-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "src/base/digest/digest.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/example_frames.h"

namespace layercast::testing {

// Value. `right` is a schedule that the version has, and `digests` are those of its chunks.
class HostileWords {
 public:
  HostileWords(std::uint32_t seed, Schedule right, std::vector<Digest> digests = {})
      : damage_(seed, std::string_view("\0\1\2\x7f\x80\xff", 6)),
        right_(std::move(right)),
        digests_(std::move(digests)) {}

  std::size_t Below(std::size_t bound) { return damage_.Below(bound); }
  bool OneIn(std::size_t odds) { return Below(odds) == 0; }

  // Some number that somebody once added to another one.
  std::uint64_t Number() {
    constexpr std::uint64_t kNumbers[] = {0,          1,          2,          3,
                                          4,          5,          7,          11,
                                          255,        65'535,     1U << 16,   1U << 31,
                                          ~0U,        1ULL << 32, 1ULL << 62, std::numeric_limits<std::int64_t>::max(),
                                          1ULL << 63, ~0ULL - 1,  ~0ULL};
    return kNumbers[Below(std::size(kNumbers))];
  }
  std::uint32_t Small() { return static_cast<std::uint32_t>(OneIn(4) ? Number() : Below(6)); }
  std::string Text() {
    static const std::vector<std::string> kTexts = {"",         "run",
                                                    "relayed",  "engine",
                                                    "x",        "tcp://127.0.0.1:1",
                                                    "nonsense", "ipc:///nowhere",
                                                    "\x1b[2J",  std::string(1025, 'n'),
                                                    "../.."};
    return kTexts[Below(kTexts.size())];
  }
  Digest SomeDigest() {
    if (!digests_.empty() && OneIn(2)) return digests_[Below(digests_.size())];
    return OneIn(2) ? right_.digest() : Digest{Number(), Number()};
  }
  std::vector<Digest> Digests() {
    if (OneIn(2)) return digests_;
    std::vector<Digest> digests(Below(6));
    for (Digest& digest : digests) digest = SomeDigest();
    return digests;
  }
  const std::vector<Digest>& RightDigests() const { return digests_; }
  std::vector<wire::AxisAmax> Amaxes() {
    std::vector<wire::AxisAmax> amaxes(OneIn(3) ? Below(4) : 0);
    for (wire::AxisAmax& amax : amaxes) amax = {Small(), std::vector<float>(Below(20), 1.5F)};
    return amaxes;
  }

  wire::Hello Hello(const std::string& lineage = "") {
    wire::Hello hello;
    hello.engine = "hostile";
    hello.lineage = lineage;
    return hello;
  }
  wire::Hello LyingHello() {
    wire::Hello hello = Hello(Text());
    if (OneIn(6)) hello.newest_protocol = static_cast<std::uint16_t>(Number());
    if (OneIn(4)) hello.engine = Text();
    hello.attempt = Number();
    if (OneIn(2)) hello.ranks = Small();
    if (OneIn(2)) hello.rank = Small();
    hello.step_known = OneIn(2);
    if (hello.step_known) hello.step = Number();
    if (hello.step_known && OneIn(2)) hello.digest = SomeDigest();
    return hello;
  }

  wire::Subscribe Subscribe() { return {right_.digest(), right_.Encode(), {}, false, "", 0}; }
  wire::Subscribe LyingSubscribe() {
    wire::Subscribe subscribe = Subscribe();
    if (OneIn(3)) subscribe.schedule.clear();
    if (OneIn(3)) subscribe.schedule_digest = SomeDigest();
    if (OneIn(3)) {
      const Schedule other = OtherSchedule();
      subscribe.schedule = other.Encode();
      if (!OneIn(3)) subscribe.schedule_digest = other.digest();
    }
    for (std::size_t more = OneIn(2) ? Below(4) : 0; more > 0; --more) {
      AmaxRequest request{.tensor = Small(), .kept = static_cast<KeptAxes>(Number()), .before_chunk = Small()};
      if (OneIn(3)) request.read_as.assign(Below(4), static_cast<std::int64_t>(Number() >> 1U));
      subscribe.amax_requests.push_back(std::move(request));
    }
    return subscribe;
  }
  // Of regions that need not lie in their tensors, nor be what any other receiver asks for.
  Schedule OtherSchedule() {
    Schedule schedule;
    for (std::size_t chunks = 1 + Below(4); chunks > 0; --chunks) {
      const std::uint64_t row_bytes = 1 + Below(100);
      const Region region{.tensor = Small(),
                          .offset = OneIn(4) ? Number() >> 2U : Below(500),
                          .row_bytes = row_bytes,
                          .rows = 1 + Below(3),
                          .stride = row_bytes + 1 + (OneIn(4) ? Number() >> 8U : Below(100))};
      try {
        schedule.Add(std::vector<Region>{region});
      } catch (const Error&) {  // not even a schedule: another one is
        schedule.Add(std::vector<Region>{{.tensor = 0, .offset = Below(20), .row_bytes = 1, .rows = 1, .stride = 0}});
      }
    }
    return schedule;
  }

  // What a receiver may say once it has a session, with numbers that lie, and what it may not.
  wire::Message OfAReceiver() {
    switch (Below(12)) {
      case 0: return LyingHello();
      case 1:
      case 2: return LyingSubscribe();
      case 3: return wire::TensorDone{Small()};
      case 4: return wire::RelayLost{Text(), Number(), Text()};
      case 5: return wire::Progress{Number(), Number(), Number(), Number()};
      case 6: return wire::Ping{};
      case 7: return wire::CostRequest{};
      case 8: return wire::Bye{};
      case 9: return Subscribe();
      default: return Any();
    }
  }

  // What a publisher may say to a session, with numbers that lie.
  wire::Message OfAPublisher() {
    switch (Below(12)) {
      case 0: return wire::Subscribed{OneIn(2) ? 11 : Number(), Digests(), Amaxes()};
      case 1:
      case 2: return wire::MoreDigests{Digests(), Amaxes()};
      case 3: {
        std::vector<wire::ReadyTensor> tensors(1 + Below(3));
        for (wire::ReadyTensor& tensor : tensors) {
          tensor = {Small(),
                    Small(),
                    OneIn(2) ? 11 : Number(),
                    Number(),
                    1.5F,
                    SomeDigest(),
                    std::vector<float>(Below(20), 1.5F),
                    Digests()};
        }
        return wire::TensorsReady{std::move(tensors)};
      }
      case 4: return wire::StreamEnd{Small(), {Number(), Number()}};
      case 5: return wire::FetchFrom{OneIn(2) ? "" : Text(), Number()};
      case 6: return wire::ChunksReady{Small()};
      case 7: return wire::NeedSchedule{};
      case 8: return wire::ServingCost{Number()};
      case 9: return wire::Pong{};
      case 10: return wire::Subscribed{11, digests_, {}};
      default: return Any();
    }
  }

  // Any message there is.
  wire::Message Any() {
    static const std::vector<wire::Message> kExamples = ExampleMessages();
    return kExamples[Below(kExamples.size())];
  }

  // Now and then in part, or with something behind it, or with damage. Not so a refusal, whose code would be any.
  std::vector<std::byte> Bytes(std::uint64_t session, const wire::Message& message) {
    std::vector<std::byte> bytes = wire::Encode({.session = session, .message = message});
    switch (std::holds_alternative<wire::Refused>(message) ? 24 : Below(24)) {
      case 0: bytes.resize(Below(bytes.size() + 1)); break;
      case 1: bytes.push_back(std::byte{0}); break;
      case 2: {
        const std::string damaged = damage_.Apply({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        const auto* const begin = reinterpret_cast<const std::byte*>(damaged.data());
        bytes.assign(begin, begin + damaged.size());
        break;
      }
      default: break;
    }
    return bytes;
  }

 private:
  Damage damage_;
  const Schedule right_;
  const std::vector<Digest> digests_;
};

}  // namespace layercast::testing
