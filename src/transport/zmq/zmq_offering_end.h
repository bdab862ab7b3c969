// The publisher's end of the zmq channel: one ROUTER socket, and one service thread ("lc-zmq") that owns it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "src/net/curve/key_check.h"
#include "src/net/limits/connection_limits.h"
#include "src/net/service_thread.h"
#include "src/net/wake_up.h"
#include "src/net/zmq/zmq_context.h"
#include "src/net/zmq/zmq_threads.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/channel/reply_queue.h"
#include "src/transport/zmq/piece_pool.h"
#include "src/transport/zmq/zmq_messages.h"

namespace layercast::zmq_channel {

// Answers what receivers send, and feeds each of them a few pieces at a time, in turn, so that a slow receiver does not
// hold up others. One thread only (the service thread).
class Service {
 public:
  Service(zmq::socket_t socket, ConnectionLimits& limits, KeyCheck& check, const OfferBook& book, PiecePool& pieces,
          const WakeUp& wake, const std::atomic<FailPoints*>& failpoints)
      : socket_(std::move(socket)),
        limits_(limits),
        check_(check),
        book_(book),
        pieces_(pieces),
        wake_(wake),
        failpoints_(failpoints) {}
  void Run(const std::stop_token& stop);

 private:
  struct Work {
    std::shared_ptr<Peer> peer;  // second owner: its pieces on their way
    ReplyQueue replies;
  };

  void ReceiveAll();
  bool ReceiveOne();  // false if there was no message
  void Handle(const std::string& routing_id, const PeerConnection& connection, std::span<const std::byte> message);
  void HandleRequest(const std::string& routing_id, const PeerConnection& connection, const Request& request);
  void FeedAll();
  bool Feed(Work& work);  // false if the peer is gone or was refused
  bool SendPiece(Work& work);
  // A peer that is gone is let go of. One that takes nothing is cut.
  enum class Sent { kTaken, kNotTaken, kGone };
  Sent Send(const std::string& routing_id, const std::vector<std::byte>& message);
  Sent Send(const std::string& routing_id, zmq::message_t& message);
  Sent SendFrame(zmq::message_t& frame, bool more);

  zmq::socket_t socket_;
  ConnectionLimits& limits_;  // watches the socket
  KeyCheck& check_;           // says who may connect to it
  const OfferBook& book_;
  PiecePool& pieces_;
  const WakeUp& wake_;
  const std::atomic<FailPoints*>& failpoints_;
  std::map<std::string, Work> work_;  // by routing id, of the peers whose replies are queued or on their way
};

// Thread-safe.
class ZmqOfferingEnd final : public OfferingEnd {
 public:
  ZmqOfferingEnd(const std::string& bind_host, const Keys& keys);
  std::string address() const override { return address_; }
  void Add(const Offer& offer) override { book_.Add(offer); }
  void Remove(std::uint64_t offer_id) override;
  void Arm(FailPoints& failpoints) override { failpoints_ = &failpoints; }
  double core_seconds() override { return service_.core_seconds() + library_threads_.core_seconds(); }

 private:
  // Makes the service's socket, binds it, and sets address_. Throws kInvalidArgument.
  zmq::socket_t Bind(const std::string& host, const Keys& keys);

  WakeUp wake_;
  OfferBook book_;  // outlives the context, as pieces_ does: the context's threads give pieces back
  PiecePool pieces_;
  zmq::context_t context_{MakeContext("zmq")};
  ZmqThreads library_threads_{context_};
  std::optional<ConnectionLimits> limits_;  // watches the service's socket, and must outlive it
  std::optional<KeyCheck> check_;           // of that socket's connections
  std::string address_;
  std::atomic<FailPoints*> failpoints_{nullptr};
  zmq::socket_t socket_;  // until the service thread takes it over
  ServiceThread service_;
};

}  // namespace layercast::zmq_channel
