// One receiver of the nccl channel, as its publisher sees it: what it has asked for in this epoch, and how far it has
// followed its fleet's call to an epoch. Its fleet decides what goes to it, and when.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/transport/channel/channel_peer.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/channel/reply_queue.h"
#include "src/transport/nccl/fleet/standing.h"
#include "src/transport/nccl/wire/communicator.h"
#include "src/transport/nccl/wire/nccl_messages.h"

namespace layercast::nccl_channel {

class Fleets;

// What all receivers of an offering end have in common; outlives them.
struct ReceiverContext {
  NcclLibrary& library;
  ChannelDevice& device;
  Invitations& invitations;
  OfferBook& book;
  const std::atomic<FailPoints*>& failpoints;
  Fleets& fleets;
};

// Resource; one thread only (the service thread). It joins a fleet when it has greeted, and its destructor leaves it.
class Receiver final : public ChannelPeer {
 public:
  Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t number)
      : ChannelPeer(std::move(connected), number), context_(context) {}
  ~Receiver() override;

  const DeviceUuid& device() const { return device_; }

  // Calls it to an epoch: whatever belonged to another epoch is over, and nothing that it says counts before its READY.
  // A call to the epoch that it was called to already only asks whether it is still there.
  void Call(std::uint64_t epoch);
  // Whether it has answered its last call, and has asked for all that it said it lacks.
  bool answered() const { return answered_ && awaited_ == 0; }
  // Tells a receiver that has answered its place in the epoch, and how to set up the communicator.
  void Admit(const Membership& membership) { control_.Send(Encode(membership)); }
  bool failed() const { return failed_; }  // NCCL has failed at its end
  bool is_new() const { return !stood_; }  // no epoch has stood at its end yet
  // Whether it wants an epoch: it has been in none yet, or waits for bytes.
  bool wants() const { return is_new() || waits_for_bytes(); }
  Deadline::Clock::time_point wants_since() const { return wants_since_; }
  std::uint64_t done() const { return done_; }  // how many of its requests have come in full so far
  // Whether it rests (standing.h): it has been in an epoch, and no request has come in full since it last had all.
  bool rests() const { return !is_new() && done_ == rested_at_; }
  // Whether it may be in the shared fleet.
  Standing& standing() { return standing_; }

  ReplyQueue& replies() { return replies_; }
  // Tells it of the pieces that go to it next. It answers with GO, unless the piece has no bytes.
  void Announce(const PieceGroup& group);
  // Takes one GO of it; false if it has said none that was not taken.
  bool TakeGo();

  // Ends its connection, soon.
  void Cut(const Error& error);

 private:
  enum class State { kWaits, kCalled, kReady };

  bool OnHello(std::span<const std::byte> message) override;
  void OnRequest(const Request& request) override;
  void OnMessage(Kind kind, std::span<const std::byte> message) override;
  void DropRequests() override { replies_.Clear(); }
  void ExpectPartner(const Hello& hello) const;  // throws kUnsupported
  void ExpectCalled() const;                     // throws kCorrupt
  void TakeReady(const Ready& ready);
  void TakeGroupsGo();
  void TakeDone();
  bool waits_for_bytes() const { return awaited_ > 0 || unfinished_ > 0; }

  const ReceiverContext& context_;
  State state_ = State::kWaits;
  DeviceUuid device_{};
  bool stood_ = false;
  Deadline::Clock::time_point wants_since_ = Deadline::Clock::now();
  std::uint64_t done_ = 0;
  std::uint64_t rested_at_ = 0;  // what done_ was when it last had all that it had asked for
  Standing standing_;
  // The members below belong to the epoch that it was called to last.
  std::uint64_t epoch_ = 0;
  bool answered_ = false;
  bool failed_ = false;
  ReplyQueue replies_;
  std::size_t awaited_ = 0;     // requests that it has said will follow, and that have not come
  std::size_t unfinished_ = 0;  // requests that have not come in full
  std::size_t announced_ = 0;   // groups to which it has not said GO
  std::size_t gos_ = 0;         // GOs that were not taken
};

}  // namespace layercast::nccl_channel
