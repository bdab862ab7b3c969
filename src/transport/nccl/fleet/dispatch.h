// How bytes go from a publisher to the members of one epoch: pieces are filled once, announced to the members that they
// are for, and sent or broadcast when all of these have said GO. FORMAT.md has the order. Part of Fleet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/nccl/fleet/nccl_receiver.h"
#include "src/transport/nccl/fleet/patience.h"
#include "src/transport/nccl/fleet/sharing.h"
#include "src/transport/nccl/wire/epoch.h"
#include "src/transport/nccl/wire/nccl_messages.h"
#include "src/transport/nccl/wire/slots.h"

namespace layercast::nccl_channel {

// What a Dispatch works with; outlives it.
struct DispatchParts {
  NcclLibrary& library;
  ChannelDevice& device;
  OfferBook& book;
  const Patience& patience;
  Slots& slots;
};

// Resource; one thread only. Its destructor aborts the epoch; after that no offer is read for it.
class Dispatch {
 public:
  // The publisher's side of an epoch. `members` are the other ranks, in order, and at least one. Throws kUnavailable.
  Dispatch(const DispatchParts& parts, const Membership& membership, const std::vector<Receiver*>& members);
  ~Dispatch();
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  // Asks NCCL whether the communicator stands at this end. Throws when NCCL, or the device, has failed.
  bool Stands();
  bool stands() const { return stands_; }  // what Stands() said last
  // Moves pieces on; true when one did. Throws when NCCL, or the device, has failed. A member that is refused meanwhile
  // must be forgotten before the next call.
  bool Progress();
  // To be called when a member has gone. From then on only what NCCL has been told already goes on, for the others.
  void Forget(const Receiver& receiver);
  bool over() const { return over_; }  // whether a member has gone
  // Whether NCCL has been told of all that the remaining members have asked for.
  bool all_told() const;
  // The members that have kept the others waiting for too long.
  std::vector<Receiver*> Late();

  // Whether the device or NCCL is at work, of which no file descriptor tells.
  bool busy() const { return !stands_ || !filling_.empty() || !sending_.empty(); }
  // Whether something waits for a member.
  bool waits() const { return !announced_.empty() || sharing_.waits(); }

 private:
  struct Round;
  struct Lane {
    Receiver* receiver;  // null: it has gone
    int rank;
    std::size_t under_way = 0;   // pieces on their way to it; it has memory for kPiecesUnderWay
    std::deque<Round*> to_go{};  // the rounds announced to it, in order, to which it has not said GO
  };
  // A piece, which is filled once for all members that its round is for.
  struct Outgoing {
    std::vector<std::uint64_t> tickets;  // one for each of these members
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    Slots::Lent slot;
    OfferUse offered;          // null once its memory is not read any more
    std::uint64_t filled = 0;  // the mark in the stream of copies
  };
  // Pieces that are announced and go together, to one member or to all.
  struct Round {
    std::vector<Lane*> to;
    bool broadcast = false;
    std::vector<Outgoing> pieces;
    std::size_t gos = 0;
    std::uint64_t number = 0;
  };

  // The stages of a piece: each function moves the pieces that can go on to the next stage.
  bool Fill();
  bool MayFill(const Lane& lane) const;
  bool FillTogether();
  bool FillAlone();
  bool FillPiece(std::vector<Lane*> to, bool broadcast);
  std::size_t PackInto(Slot& slot, ReplyPlan& plan, bool& reads_on);
  bool Announce();
  void AddToAnnounced(Round round, std::size_t begun);
  void AnnounceNothing(const Round& round);
  void Tell(Round& round);
  void TakeGos();
  bool Launch(bool settled);
  std::vector<Round> TakeLaunchable();
  bool Finish(bool settled);

  const DispatchParts parts_;
  std::vector<Lane> lanes_;
  Sharing sharing_;
  bool stands_ = false;
  bool over_ = false;
  std::deque<Round> filling_;   // of one piece each
  std::list<Round> announced_;  // a list, because lanes point to its rounds
  std::uint64_t rounds_ = 0;    // how many there were so far
  std::uint64_t oldest_ = 0;    // the number of the oldest round, if it waits for its members only; else 0
  Deadline::Clock::time_point oldest_since_;
  Groups<Round> sending_;
  std::optional<Epoch> epoch_;  // there until the destructor ends it
};

}  // namespace layercast::nccl_channel
