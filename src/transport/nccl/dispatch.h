// What goes from a publisher to the members of one epoch: pieces are filled once, announced to those that they are for,
// and sent or broadcast when all of these have said GO. FORMAT.md has the order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/nccl/epoch.h"
#include "src/transport/nccl/messages.h"
#include "src/transport/nccl/patience.h"
#include "src/transport/nccl/receiver.h"
#include "src/transport/nccl/sharing.h"
#include "src/transport/nccl/slots.h"

namespace layercast::nccl_channel {

// What it works with; outlives it.
struct DispatchParts {
  NcclLibrary& library;
  ChannelDevice& device;
  OfferBook& book;
  const Patience& patience;
  Slots& slots;
};

// Resource; one thread only. Its destructor aborts the epoch; no offer is read for it after.
class Dispatch {
 public:
  // The publisher's rank of an epoch; `members`, which must not be none, are the others in order. Throws kUnavailable.
  Dispatch(const DispatchParts& parts, const Membership& membership, const std::vector<Receiver*>& members);
  ~Dispatch();
  Dispatch(const Dispatch&) = delete;
  Dispatch& operator=(const Dispatch&) = delete;

  // Whether the communicator stands at this end. This and Progress throw when NCCL, or the device, has failed.
  bool Stands();
  bool stands() const { return stands_; }  // as it said last
  // Moves pieces on; true when one did. A member that is refused meanwhile must be forgotten before the next time.
  bool Progress();
  // A member has gone: from now on only what NCCL was told before goes on, for others.
  void Forget(const Receiver& receiver);
  bool over() const { return over_; }
  // NCCL has been told all that the members left have asked for.
  bool all_told() const;
  // The members that have kept the rest waiting for too long.
  std::vector<Receiver*> Late();

  // Whether the device or NCCL is at work, of which no descriptor tells; whether something waits for a member.
  bool busy() const { return !stands_ || !filling_.empty() || !sending_.empty(); }
  bool waits() const { return !announced_.empty() || sharing_.waits(); }

 private:
  struct Round;
  struct Lane {
    Receiver* receiver;  // null: it has gone
    int rank;
    std::size_t under_way = 0;   // pieces, of which it has memory for kPiecesUnderWay
    std::deque<Round*> to_go{};  // announced, in order, and it has not said GO
  };
  // A piece, filled once for all whom its round is for.
  struct Outgoing {
    std::vector<std::uint64_t> tickets;  // by receiver
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    Slots::Lent slot;
    std::shared_ptr<Offered> offered;  // second owner: the book; while the offer's memory is read
    std::uint64_t filled = 0;          // the mark in the stream of copies
  };
  // What goes in one group, to one member or to all.
  struct Round {
    std::vector<Lane*> to;
    bool broadcast = false;
    std::vector<Outgoing> pieces;
    std::size_t gos = 0;
    std::uint64_t number = 0;
  };

  // The stages of a piece: each moves those that can go on to the next.
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
  void EndReading(Outgoing& piece);

  const DispatchParts parts_;
  std::vector<Lane> lanes_;
  Sharing sharing_;
  bool stands_ = false;
  bool over_ = false;
  std::deque<Round> filling_;   // of one piece each
  std::list<Round> announced_;  // stay where they are
  std::uint64_t rounds_ = 0;    // so far
  std::uint64_t oldest_ = 0;    // of these, that nothing but its members keeps waiting; 0: none
  Deadline::Clock::time_point oldest_since_;
  Groups<Round> sending_;
  std::optional<Epoch> epoch_;  // for as long as this lives
};

}  // namespace layercast::nccl_channel
