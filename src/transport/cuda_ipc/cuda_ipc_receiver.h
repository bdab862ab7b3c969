// One receiver of the cuda_ipc channel, as its publisher sees it: the greeting, what it has asked for, and what it was
// granted and still reads. Used by CudaIpcOfferingEnd.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/net/control_socket.h"
#include "src/transport/cuda_ipc/cuda_ipc_messages.h"
#include "src/transport/cuda_ipc/offers.h"

namespace layercast::cuda_ipc_channel {

// What all receivers of an offering end have in common; outlives them.
struct ReceiverContext {
  bool opens_its_own = false;  // what IpcDriver says
  CopyIn& copy_in;
  Offers& offers;
  const std::atomic<FailPoints*>& failpoints;
};

// Resource; one thread only (the service thread).
class Receiver {
 public:
  // `number`: the receiver's number among all of the end, for the log.
  Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t number);
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Takes the messages that are there, but not so many that other receivers wait long. Throws when the connection is of
  // no more use.
  void TakeMessages();
  bool more() const { return more_; }  // messages may be left, even if a poll of the socket shows nothing
  // Grants what may be granted, and tells the receiver of segments that are gone. True if a request was granted or
  // refused. Throws when the connection is of no more use.
  bool Progress();

  const ControlSocket& control() const { return control_; }
  bool waits() const { return !waiting_.empty(); }  // whether a request waits for the device
  std::uint64_t number() const { return number_; }
  // Whether it is to lose its connection: it belongs to another user, has not greeted in time, or still reads an offer
  // that was removed long ago.
  bool TooLate();

 private:
  struct Asked {
    std::uint64_t ticket = 0;
    std::shared_ptr<OfferInArena> offered;  // second owner: Offers
    std::vector<Place> places;
    std::vector<std::shared_ptr<Segment>> segments;  // in which the places lie; owned by the offer's blocks too
  };
  struct Held {
    std::shared_ptr<OfferInArena> offered;  // second owner: Offers
    std::size_t regions = 0;
    std::optional<Deadline> let_go;  // by when it must be done; set once the offer was removed
  };

  void Take(std::span<const std::byte> message);
  void TakeHello(const Hello& hello);
  void TakeRequest(const Request& request);
  Asked Locate(const Request& request);
  void TakeDone(std::uint64_t ticket);
  void Grant(const Asked& asked, bool waits);
  void Announce(const std::shared_ptr<Segment>& segment);
  void TellOfGoneSegments();
  // Tells the receiver why nothing more will be granted, and drops what waits.
  void Refuse(const Refusal& refusal);

  ControlSocket control_;
  const ReceiverContext& context_;
  const std::uint64_t number_;
  const bool ours_;
  const Deadline greeting_;
  bool greeted_ = false;
  bool takes_events_ = false;
  bool refused_ = false;
  bool more_ = false;
  std::deque<Asked> waiting_;           // requests whose offer the device has yet to copy in
  std::map<std::uint64_t, Held> held_;  // by ticket; all requests under way, those in waiting_ included
  std::size_t regions_ = 0;             // of all in held_
  std::map<std::uint32_t, std::weak_ptr<Segment>> announced_;
};

}  // namespace layercast::cuda_ipc_channel
