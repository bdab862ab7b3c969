// A fleet: receivers of a publisher that share one communicator. It decides who belongs to its epoch, when an epoch is
// made, and what becomes of it when a member is lost. FORMAT.md has the rules. Part of Fleets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/transport/nccl/fleet/dispatch.h"
#include "src/transport/nccl/fleet/nccl_receiver.h"
#include "src/transport/nccl/fleet/patience.h"
#include "src/transport/nccl/wire/slots.h"

namespace layercast::nccl_channel {

// What the fleets of an offering end have in common; outlives them.
struct FleetContext {
  NcclLibrary& library;
  ChannelDevice& device;
  OfferBook& book;
  Patience patience{};
  std::size_t piece_bytes = kPieceBytes;
  std::uint64_t epochs = 0;  // how many all fleets together have had so far
};

// Why a fleet has to be looked at again soon even if its sockets are quiet.
enum class Attention { kNone, kClock, kDevice };

// Resource; one thread only. Receivers are borrowed: each must leave before it is destroyed.
class Fleet {
 public:
  Fleet(FleetContext& context, std::size_t size)
      : context_(context), size_(size), slots_(context.device, context.piece_bytes) {}
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  bool empty() const { return members_.empty(); }
  const std::vector<Receiver*>& members() const { return members_; }
  // Whether the fleet is not full, and no member is on the receiver's GPU, of which NCCL takes only one rank.
  bool HasPlaceFor(const Receiver& receiver) const;
  void Join(Receiver& receiver) { members_.push_back(&receiver); }
  void Leave(const Receiver& receiver);
  // Moves on whatever can go on; true when something did. A member with which it cannot go on is put apart, or cut.
  bool Progress();
  // Takes the receivers that were put apart: they go on in fleets of their own from now on.
  std::vector<Receiver*> TakeApart() { return std::exchange(apart_, {}); }
  Attention attention() const;

 private:
  bool Step();
  // An epoch is made in three steps: its members are called, they answer, a communicator is set up.
  bool Due() const;
  bool MayAdmit() const;
  void Call();
  void OweEach(const std::vector<Receiver*>& before);
  bool Gather();
  void Begin();
  bool SetUp();
  // Attend is called while a communicator stands, LetFinish once a member of its epoch has gone.
  bool Attend();
  bool LetFinish();
  void End();

  // To be called when NCCL has failed, or moves nothing. Calls the members; unless one of them turns out to be lost,
  // they part (BreakUp).
  void Suspect(const Error& error);
  void BreakUp(const Error& error);
  void PutApart(Receiver& receiver, const char* why);
  bool IsOutside(const Receiver& receiver) const;  // wants an epoch, and is in none
  std::vector<Receiver*> Silent() const;           // were called, and have not answered
  void ExpectNoneFailed() const;

  FleetContext& context_;
  const std::size_t size_;
  std::vector<Receiver*> members_;
  std::vector<Receiver*> apart_;
  // The epoch that is being made, or stands: its receivers by rank, without those that have gone, and its number.
  std::vector<Receiver*> crew_;
  std::uint64_t number_ = 0;
  bool calling_ = false;
  // A member of the crew that was there before others were taken in, and is owed a request in full before anybody new
  // is taken in again, or until owed_until_. So members make progress, however fast others come and go.
  struct Owed {
    const Receiver* receiver;
    std::uint64_t done;  // its done() when others were taken in
  };
  std::vector<Owed> owed_;
  Deadline owed_until_{Deadline::Clock::time_point{}};
  Deadline answer_by_{Deadline::Clock::time_point{}};
  Deadline stand_by_{Deadline::Clock::time_point{}};
  Deadline finish_by_{Deadline::Clock::time_point{}};
  bool left_unfinished_ = false;      // a member has left while it waited for something
  bool lost_ = false;                 // a member was lost since the members were called
  std::optional<Error> suspected_{};  // why they were called, if NCCL has failed
  Slots slots_;
  std::optional<Dispatch> dispatch_;  // once the members have answered
};

}  // namespace layercast::nccl_channel
