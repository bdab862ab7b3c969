// A publisher's receivers that share one communicator, up to so many: who belongs to its epoch, when one is made, and
// what becomes of it when somebody is lost. FORMAT.md has the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/transport/nccl/dispatch.h"
#include "src/transport/nccl/patience.h"
#include "src/transport/nccl/receiver.h"
#include "src/transport/nccl/slots.h"

namespace layercast::nccl_channel {

// What the fleets of an end have in common; outlives them.
struct FleetContext {
  NcclLibrary& library;
  ChannelDevice& device;
  OfferBook& book;
  Patience patience{};
  std::size_t piece_bytes = kPieceBytes;
  std::uint64_t epochs = 0;  // of all fleets, so far
};

// How soon a fleet wants to be looked at again, whatever its sockets say.
enum class Attention { kNone, kClock, kDevice };

// Resource; one thread only. Receivers are borrowed: each leaves before it goes.
class Fleet {
 public:
  Fleet(FleetContext& context, std::size_t size)
      : context_(context), size_(size), slots_(context.device, context.piece_bytes) {}
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  bool empty() const { return members_.empty(); }
  const std::vector<Receiver*>& members() const { return members_; }
  // NCCL takes one rank for a GPU.
  bool HasPlaceFor(const Receiver& receiver) const;
  void Join(Receiver& receiver) { members_.push_back(&receiver); }
  void Leave(const Receiver& receiver);
  // Moves on whatever can go on; true when something did. A member that it cannot go on with is put apart, or cut.
  bool Progress();
  // Those that go on in fleets of their own from now on.
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
  // What is done while a communicator stands, and once one of its members has gone.
  bool Attend();
  bool LetFinish();
  void End();

  // NCCL has failed, or moves nothing: unless somebody turns out to be lost, the members part.
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
  // The epoch that is made, or stands.
  std::vector<Receiver*> crew_;  // by rank; those that have not gone
  std::uint64_t number_ = 0;
  bool calling_ = false;
  // Of the crew, those that nothing has come to since others were taken in: until then, or for so long, nobody new is.
  // So members get on, however fast others come and go.
  struct Owed {
    const Receiver* receiver;
    std::uint64_t done;  // its, at that time
  };
  std::vector<Owed> owed_;
  Deadline owed_until_{Deadline::Clock::time_point{}};
  Deadline answer_by_{Deadline::Clock::time_point{}};
  Deadline stand_by_{Deadline::Clock::time_point{}};
  Deadline finish_by_{Deadline::Clock::time_point{}};
  bool left_unfinished_ = false;      // somebody has, while it waited for something
  bool lost_ = false;                 // somebody was, since the members were called
  std::optional<Error> suspected_{};  // why they were
  Slots slots_;
  std::optional<Dispatch> dispatch_;  // once the members have answered
};

}  // namespace layercast::nccl_channel
