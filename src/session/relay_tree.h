// Who takes a snapshot's chunks from whom: the receivers of one schedule, as a tree whose root is the publisher. Every
// receiver that relays feeds a few others, so that the publisher sends about one copy, and the last of N receivers is
// some log N steps away from it. Kept by the publisher; plans only, and knows no socket. One thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/session/outbox.h"
#include "src/session/pace.h"

namespace layercast {

// Where a relay serves on what it has. Value.
struct RelayPlace {
  std::string endpoint;  // empty: it does not relay
  std::uint64_t offer = 0;
  bool operator==(const RelayPlace&) const = default;
};

class RelayTree {
 public:
  // How many receivers one relay feeds: two need twice its bandwidth, and halve the depth of the tree.
  static constexpr std::size_t kFanOut = 2;
  // A receiver that has lost so many takes from the publisher: finding that one is dead may take seconds.
  static constexpr std::size_t kMostLost = 2;
  // A receiver that was held up by its relay for so long goes elsewhere.
  static constexpr std::chrono::milliseconds kHeldUp{1500};
  // A receiver that has waited for so long, and got not one chunk, goes elsewhere, whatever its relay says of itself;
  // unless the relay waits for another relay and gets nothing either: then that one is left first.
  static constexpr std::chrono::milliseconds kStarved{5000};
  // So many receivers that have finished are remembered, the latest, beside those that somebody takes from: they serve
  // late joiners.
  static constexpr std::size_t kMostFinished = 64;

  struct Receiver {
    std::string host;
    RelayPlace place;
    bool takes_relays = false;  // false: it reads the publisher's own memory, which costs the publisher nothing
  };
  struct Move {
    SessionKey key;
    std::optional<RelayPlace> to;  // nullopt is the publisher
  };
  // Where `key` takes its chunks from: nullopt is the publisher. Throws kInvalidArgument where `key` was a receiver's
  // before, whose relay others may take from.
  std::optional<RelayPlace> Join(const SessionKey& key, Receiver receiver, Pace::TimePoint now);
  // `key` could not take chunks from that relay: nobody is sent to it any more, and `key` goes elsewhere. nullopt: it
  // has been sent elsewhere already, before this was heard.
  std::optional<Move> Lost(const SessionKey& key, const RelayPlace& relay);
  // Takes what `key` says of how it gets on. Where its relay has held it up for a while it goes elsewhere, and nobody
  // new is sent to that relay, or to those behind it.
  struct Escape {
    Move move;
    RelayPlace from;
    std::string why;
  };
  std::optional<Escape> Note(const SessionKey& key, const wire::Progress& progress, Pace::TimePoint now);
  // `key` needs nothing any more. What it relays can be had for as long as nobody says otherwise.
  void Finish(const SessionKey& key);
  // `key` is gone, and what it relayed with it: those that took from it go elsewhere.
  std::vector<Move> Leave(const SessionKey& key);

  // What a receiver does, for people who look; nullopt: there is no such receiver.
  struct Standing {
    std::string takes_from;  // a relay's endpoint; empty: the publisher's memory
    std::string relays_at;   // empty: it does not relay
    Pace pace;
  };
  std::optional<Standing> StandingOf(const SessionKey& key) const;

  // Somebody is here who has neither finished nor left.
  bool HasReceivers() const { return receivers_ != 0; }
  std::size_t size() const { return members_.size(); }

  // Relays between a receiver and one that has all chunks: the publisher, or a receiver that has finished.
  std::size_t DepthOf(const SessionKey& key) const;

 private:
  struct Member {
    Receiver receiver;
    std::uint64_t number = 0;  // in the order of joining
    enum class From : std::uint8_t { kNobody, kPublisher, kRelay } from = From::kNobody;
    SessionKey relay{};     // where from is kRelay
    std::size_t feeds = 0;  // receivers that take from it
    bool finished = false;
    bool lost = false;         // somebody could not take from it
    bool slow = false;         // somebody was held up by it
    std::size_t has_lost = 0;  // relays
    Pace pace;
    std::chrono::microseconds held_up{0};  // by the relay that it takes from
    std::chrono::microseconds starved{0};  // by it
  };
  using Members = std::map<SessionKey, Member>;

  // Finds where a member is to take from, who takes from nobody now.
  std::optional<RelayPlace> Place(Members::value_type& member);
  void Detach(Member& member);
  // Why a member that takes from `relay` goes elsewhere, after another period of that length; nullopt: it stays.
  std::optional<std::string> WhyElsewhere(Members::value_type& follower, const Member& relay,
                                          std::chrono::microseconds period, Pace::TimePoint now) const;
  std::vector<double> RatesBeside(const SessionKey& key, Pace::TimePoint now) const;
  bool MayFeed(const Members::value_type& relay, const SessionKey& key) const;
  bool IsBelow(const SessionKey& key, const SessionKey& relay) const;
  bool IsSlowed(const SessionKey& key) const;
  // Sends nobody new to that member; forgets it, if it is of no more use at all.
  void Retire(Members::iterator member);
  void ForgetFinished();

  Members members_;
  std::uint64_t joined_ = 0;
  std::size_t receivers_ = 0;  // of the members, those that have not finished
};

}  // namespace layercast
