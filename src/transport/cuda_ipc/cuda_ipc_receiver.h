// One receiver of the cuda_ipc channel, as its publisher sees it: what it has asked for, and what it was granted and
// still reads. Used by CudaIpcOfferingEnd.
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
#include "src/transport/channel/channel_peer.h"
#include "src/transport/cuda_ipc/cuda_ipc_messages.h"
#include "src/transport/cuda_ipc/offers.h"

namespace layercast::cuda_ipc_channel {

// What all receivers of an offering end have in common; outlives them.
struct ReceiverContext {
  bool opens_its_own = false;  // what IpcDriver says
  Invitations& invitations;
  CopyIn& copy_in;
  Offers& offers;
  const std::atomic<FailPoints*>& failpoints;
};

// Resource; one thread only (the service thread).
class Receiver final : public ChannelPeer {
 public:
  Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t number);

  // Grants what may be granted, and tells the receiver of segments that are gone. True if a request was granted or
  // refused. Throws when the connection is of no more use.
  bool Progress();
  bool waits() const { return !waiting_.empty(); }  // whether a request waits for the device
  // Also if it belongs to another user, or still reads an offer that was removed long ago.
  bool TooLate() override;

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

  bool OnHello(std::span<const std::byte> message) override;
  void OnRequest(const Request& request) override;
  void OnMessage(Kind kind, std::span<const std::byte> message) override;
  void DropRequests() override { waiting_.clear(); }
  Asked Locate(const Request& request);
  void TakeDone(std::uint64_t ticket);
  void Grant(const Asked& asked, bool waits);
  void Announce(const std::shared_ptr<Segment>& segment);
  void TellOfGoneSegments();

  const ReceiverContext& context_;
  const bool ours_;
  bool takes_events_ = false;
  std::deque<Asked> waiting_;           // requests whose offer the device has yet to copy in
  std::map<std::uint64_t, Held> held_;  // by ticket; all requests under way, those in waiting_ included
  std::size_t regions_ = 0;             // of all in held_
  std::map<std::uint32_t, std::weak_ptr<Segment>> announced_;
};

}  // namespace layercast::cuda_ipc_channel
