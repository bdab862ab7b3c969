// One receiver of the ucx channel, as its publisher sees it: what it has asked for, and the pieces on their way to it,
// or what it may read. Used by UcxOfferingEnd.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/transport/channel/channel_peer.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/channel/reply_queue.h"
#include "src/transport/ucx/one_sided/granted_reads.h"
#include "src/transport/ucx/one_sided/readable_offers.h"
#include "src/transport/ucx/wire/send_window.h"
#include "src/transport/ucx/wire/ucx_link.h"
#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

// What all receivers of an offering end have in common; outlives them.
struct ReceiverContext {
  Invitations& invitations;
  OfferBook& book;
  const std::atomic<FailPoints*>& failpoints;
  ReadableOffers* readable = nullptr;  // null: no one-sided reads
  bool reads_anywhere = false;         // also where both ends are on one host
};

// Resource; one thread only (the service thread). After its destructor no offer is read for this receiver any more.
class Receiver final : public ChannelPeer {
 public:
  Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t number)
      : ChannelPeer(std::move(connected), number), context_(context) {}
  ~Receiver() override;

  // Sends what may be sent, and lets UCX work; true when something moved. Throws when the connection is of no more use.
  bool Progress();
  // The descriptor by which to wait for UCX; -1: there is none yet.
  int wait_fd() const { return reads_ ? reads_->target().fd() : link_ ? link_->fd() : -1; }
  // Whether a thread may sleep until control() or wait_fd() says something.
  bool Arm() { return reads_ ? reads_->target().Arm() : !link_ || link_->Arm(); }
  bool spins() const { return spins_ && busy(); }
  bool HoldsOverdue() const;  // whether it still reads an offer that was removed long ago

 private:
  struct Piece {
    Receiver* receiver = nullptr;
    OfferUse offered;               // null: not a piece but a PONG
    std::vector<std::byte> header;  // UCX reads it until the message has left
    Buffer gathered;                // kPieceBytes, made at its first use
    std::size_t windowed = 0;       // its bytes in the window; 0: not by rendezvous, so UCX tells only when it left
    Deadline::Clock::time_point sent;
  };

  bool OnHello(std::span<const std::byte> message) override;
  void OnRequest(const Request& request) override;
  void OnPing() override;
  void OnMessage(Kind kind, std::span<const std::byte> message) override;
  void DropRequests() override { replies_.Clear(); }
  void TakeHello(const Hello& hello);
  void TakeAnswer(std::span<const std::byte> message);
  bool WelcomeToRead(const Hello& hello);
  bool ProgressReads();
  void GrantNext();
  void Feed();
  void SendPiece(Reply& reply, OfferUse use);
  void SendPong();
  void Send(std::unique_ptr<Piece> piece, std::span<const std::byte> data);
  std::unique_ptr<Piece> TakeSpare();
  static void OnSent(void* request, ucs_status_t status, void* piece);
  void End(const Piece& piece);
  bool busy() const { return !replies_.empty() || !under_way_.empty(); }

  const ReceiverContext& context_;
  HostMemory memory_;
  Token token_{};
  bool spins_ = false;
  bool pong_owed_ = false;
  bool pong_under_way_ = false;  // one at a time: a receiver that does not let UCX work takes none
  ReplyQueue replies_;
  SendWindow window_;
  std::vector<std::unique_ptr<Piece>> under_way_;
  std::vector<std::unique_ptr<Piece>> spare_;  // their buffers stay faulted in
  std::optional<UcxLink> link_;
  std::optional<GrantedReads> reads_;  // instead of a link
};

}  // namespace layercast::ucx_channel
