// One receiver, as its publisher sees it: its connection, the greeting, what it has asked for in this epoch, and where
// it stands towards the epoch that its fleet calls it to. What goes to it when, its fleet decides.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/transport/control_socket.h"
#include "src/transport/nccl/communicator.h"
#include "src/transport/nccl/messages.h"
#include "src/transport/nccl/standing.h"
#include "src/transport/offer_book.h"
#include "src/transport/reply_queue.h"

namespace layercast::nccl_channel {

class Fleets;

// What the connections of an end have in common; outlives them.
struct ReceiverContext {
  NcclLibrary& library;
  ChannelDevice& device;
  Token key{};
  OfferBook& book;
  const std::atomic<FailPoints*>& failpoints;
  Fleets& fleets;
};

// One thread only (the service's). It joins a fleet by greeting, and leaves it as it ends.
class Receiver {
 public:
  Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t number);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Takes the messages that are there, but not so many that others wait long. Throws when the connection is of no more
  // use.
  void TakeMessages();
  bool more() const { return more_; }  // were left, whatever the socket says
  const ControlSocket& control() const { return control_; }
  bool TooLate() const { return cut_ || (state_ == State::kGreets && greet_by_.Passed()); }
  std::uint64_t number() const { return number_; }
  const DeviceUuid& device() const { return device_; }

  // Calls it to an epoch: whatever was of another is over. Until it is ready nothing that it says counts.
  void Call(std::uint64_t epoch);
  // Whether it has answered since it was called last, perhaps to the same epoch once more, and has asked for what it
  // lacks.
  bool answered() const { return answered_ && awaited_ == 0; }
  // Tells a receiver that is where it was called to who else is.
  void Admit(const Membership& membership) { control_.Send(EncodeEpoch(membership)); }
  bool failed() const { return failed_; }  // NCCL did, at its end
  bool is_new() const { return !stood_; }  // has been in no epoch that stood at its end
  // Whether it waits for what wants an epoch: to be in its first, or bytes.
  bool wants() const { return is_new() || waits_for_bytes(); }
  Deadline::Clock::time_point wants_since() const { return wants_since_; }
  std::uint64_t done() const { return done_; }  // requests of which it has had all, so far
  // Whether it has been in an epoch, and nothing has come to it since it had all that it had asked for.
  bool rests() const { return !is_new() && done_ == rested_at_; }
  // Whether its fleet goes on without it.
  Standing& standing() { return standing_; }

  ReplyQueue& replies() { return replies_; }
  // Tells of the pieces that go to it next. But for a piece of nothing, it will say GO.
  void Announce(const PieceGroup& group);
  // Whether it has said GO once more.
  bool TakeGo();

  // Ends what it has under way, and tells it why.
  void Refuse(const Refusal& refusal);
  bool refused() const { return state_ == State::kRefused; }
  // Ends its connection, soon.
  void Cut(const Error& error);

 private:
  enum class State { kGreets, kWaits, kCalled, kReady, kRefused };

  void Take(std::span<const std::byte> message);
  void TakeOfEpoch(NcclKind kind, std::span<const std::byte> message);
  void TakeHello(const Hello& hello);
  void TakeReady(const Ready& ready);
  void TakeRequest(const Request& request);
  void TakeGroupsGo();
  void TakeDone();
  bool waits_for_bytes() const { return awaited_ > 0 || unfinished_ > 0; }

  ControlSocket control_;
  const ReceiverContext& context_;
  const std::uint64_t number_;
  const Deadline greet_by_;
  State state_ = State::kGreets;
  DeviceUuid device_{};
  bool cut_ = false;
  bool more_ = false;
  bool stood_ = false;
  Deadline::Clock::time_point wants_since_ = Deadline::Clock::now();
  std::uint64_t done_ = 0;
  std::uint64_t rested_at_ = 0;  // what done_ was then
  Standing standing_;
  // What follows is of this epoch.
  std::uint64_t epoch_ = 0;
  bool answered_ = false;
  bool failed_ = false;
  ReplyQueue replies_;
  std::size_t awaited_ = 0;     // requests that it has said will follow
  std::size_t unfinished_ = 0;  // that it has not got all of
  std::size_t announced_ = 0;   // groups that it has not said GO to
  std::size_t gos_ = 0;         // that were not taken
};

}  // namespace layercast::nccl_channel
