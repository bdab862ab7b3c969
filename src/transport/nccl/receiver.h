// One receiver, as its publisher sees it: the greeting, what it has asked for, and the pieces on their way to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/transport/control_socket.h"
#include "src/transport/nccl/epoch.h"
#include "src/transport/nccl/messages.h"
#include "src/transport/offer_book.h"
#include "src/transport/reply_queue.h"

namespace layercast::nccl_channel {

// What the connections of an end have in common; outlives them.
struct ReceiverContext {
  NcclLibrary& library;
  StagingDevice& device;
  Token key{};
  OfferBook& book;
  const std::atomic<FailPoints*>& failpoints;
};

// One thread only (the service's).
class Receiver {
 public:
  // `epoch`: the number of its communicator.
  Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t epoch);
  // After it no offer is read for this receiver.
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Takes the messages that are there, but not so many that others wait long. Both throw when the connection is of no
  // more use.
  void TakeMessages();
  bool more() const { return more_; }  // were left, whatever the socket says
  // Moves pieces on; true when one did.
  bool Progress();

  const ControlSocket& control() const { return control_; }
  // Whether the device or NCCL is at work for it, of which no descriptor tells.
  bool busy() const;
  bool TooLate() const { return !stands_ && stand_by_.Passed(); }
  std::uint64_t number() const { return number_; }

 private:
  struct Outgoing {
    Piece piece;
    std::unique_ptr<Slot> slot;        // none: a piece of nothing
    std::shared_ptr<Offered> offered;  // second owner: the book; while the offer's memory is read
    std::uint64_t filled = 0;          // the mark in the stream of copies
    Transfer AsTransfer() const { return {slot->device.data(), piece.bytes}; }
  };

  void Take(std::span<const std::byte> message);
  void TakeHello(const Hello& hello);
  void TakeRequest(const Request& request);
  void TakeGo(std::size_t pieces);
  // Nothing more will come; the receiver is told why.
  void Refuse(const Refusal& refusal);

  // The stages of a piece: each moves those that can go on to the next.
  bool Fill();
  void FillPiece(Reply& reply);
  std::size_t PackInto(Slot& slot, ReplyPlan& plan, bool& reads_on);
  bool Announce();
  bool Send(bool settled);
  bool Finish(bool settled);

  ControlSocket control_;
  const ReceiverContext& context_;
  const std::uint64_t number_;
  Deadline stand_by_;  // by then it must have greeted; then, its communicator must stand
  bool stands_ = false;
  bool refused_ = false;
  bool more_ = false;
  ReplyQueue replies_;
  std::deque<Outgoing> filling_;
  std::deque<Outgoing> announced_;
  std::deque<std::size_t> going_;  // what the receiver takes next, group by group
  std::size_t pieces_going_ = 0;   // of all these groups
  Groups<Outgoing> sending_;
  std::optional<Epoch> epoch_;  // once it has greeted
};

}  // namespace layercast::nccl_channel
