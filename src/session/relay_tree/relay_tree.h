// Who takes a snapshot's chunks from whom: the receivers of one schedule, as a tree whose root is the publisher. Every
// receiver that relays feeds a few others, so the publisher sends about one copy, and the last of N receivers is about
// log N steps away from it. The publisher keeps it. It only plans, and knows no socket. Resource; one thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/session/link/outbox.h"
#include "src/session/relay_tree/pace.h"

namespace layercast {

// Where a relay serves what it has. Value.
struct RelayPlace {
  std::string endpoint;  // empty: it does not relay
  std::uint64_t offer = 0;
  bool operator==(const RelayPlace&) const = default;
};

class RelayTree {
 public:
  // How many receivers one relay feeds. Feeding two takes twice the relay's bandwidth, but makes the tree far less
  // deep.
  static constexpr std::size_t kFanOut = 2;
  // A receiver that has lost so many relays takes from the publisher, because each time it may take seconds to find out
  // that a relay is dead.
  static constexpr std::size_t kMostLost = 2;
  // A receiver that was held up by its relay for so long goes elsewhere.
  static constexpr std::chrono::milliseconds kHeldUp{1500};
  // A receiver that has waited for so long without getting one chunk goes elsewhere, whatever its relay reports. But if
  // the relay itself waits for another relay and gets nothing either, the relay goes elsewhere first.
  static constexpr std::chrono::milliseconds kStarved{5000};
  // How many receivers that have finished are remembered, the latest ones, to serve late joiners. Those that somebody
  // takes from are remembered in addition.
  static constexpr std::size_t kMostFinished = 64;

  struct Receiver {
    std::string host;
    RelayPlace place;
    bool takes_relays = false;  // false: it reads the publisher's own memory, which costs the publisher nothing
  };
  struct Move {
    SessionKey key;
    std::optional<RelayPlace> to;  // nullopt: the publisher
  };
  // Says where `key` takes its chunks from; nullopt: from the publisher. Throws kInvalidArgument if `key` was used by a
  // receiver before, whose relay others may take from.
  std::optional<RelayPlace> Join(const SessionKey& key, Receiver receiver, Pace::TimePoint now);
  // Says that `key` could not take chunks from that relay: nobody is sent to it any more, and `key` goes elsewhere.
  // nullopt: `key` has been sent elsewhere already.
  std::optional<Move> Lost(const SessionKey& key, const RelayPlace& relay);
  // Takes a report of `key` on its progress. If its relay has held it up for a while, `key` goes elsewhere, and nobody
  // new is sent to that relay, or to those that take from it.
  struct Escape {
    Move move;
    RelayPlace from;
    std::string why;
  };
  std::optional<Escape> Note(const SessionKey& key, const wire::Progress& progress, Pace::TimePoint now);
  // Says that `key` needs nothing any more. Others may take what it relays until they find that they cannot.
  void Finish(const SessionKey& key);
  // Says that `key` is gone, and what it relayed with it. Those that took from it go elsewhere.
  std::vector<Move> Leave(const SessionKey& key);

  // What a receiver does now, for status reports; nullopt: there is no such receiver.
  struct Standing {
    std::string takes_from;  // a relay's endpoint; empty: the publisher's memory
    std::string relays_at;   // empty: it does not relay
    Pace pace;
  };
  std::optional<Standing> StandingOf(const SessionKey& key) const;

  // Whether there is a receiver that has neither finished nor left.
  bool HasReceivers() const { return receivers_ != 0; }
  std::size_t size() const { return members_.size(); }

  // How many relays lie between a receiver and one that has all chunks: the publisher, or a receiver that has finished.
  std::size_t DepthOf(const SessionKey& key) const;

 private:
  struct Member {
    Receiver receiver;
    std::uint64_t number = 0;  // in the order of joining
    enum class From : std::uint8_t { kNobody, kPublisher, kRelay } from = From::kNobody;
    SessionKey relay{};     // the relay that it takes from, if it takes from one
    std::size_t feeds = 0;  // how many receivers take from it
    bool finished = false;
    bool lost = false;         // somebody could not take from it
    bool slow = false;         // somebody was held up by it
    std::size_t has_lost = 0;  // how many relays it has lost
    Pace pace;
    std::chrono::microseconds held_up{0};  // for how long the relay that it takes from has held it up
    std::chrono::microseconds starved{0};  // for how long it has got nothing from that relay
  };
  using Members = std::map<SessionKey, Member>;

  // Finds a place to take from for a member that takes from nobody now.
  std::optional<RelayPlace> Place(Members::value_type& member);
  void Detach(Member& member);
  // Why `follower`, which takes from `relay`, goes elsewhere after another period of that length; nullopt: it stays.
  std::optional<std::string> WhyElsewhere(Members::value_type& follower, const Member& relay,
                                          std::chrono::microseconds period, Pace::TimePoint now) const;
  std::vector<double> RatesBeside(const SessionKey& key, Pace::TimePoint now) const;
  bool MayFeed(const Members::value_type& relay, const SessionKey& key) const;
  bool IsBelow(const SessionKey& key, const SessionKey& relay) const;
  bool IsSlowed(const SessionKey& key) const;
  // Sends nobody new to that member, and forgets it if it is of no more use at all.
  void Retire(Members::iterator member);
  void ForgetFinished();

  Members members_;
  std::uint64_t joined_ = 0;
  std::size_t receivers_ = 0;  // how many of the members have not finished
};

}  // namespace layercast
