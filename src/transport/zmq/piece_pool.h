// The pieces that are on their way through ZeroMQ, which may read the offered memory long after a send has returned.
// Part of ZmqOfferingEnd.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "layercast/memory.h"
#include "src/net/wake_up.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/zmq/peer.h"

namespace layercast::zmq_channel {

class PiecePool;

// The bytes of a piece on their way. Between HandOver and End they belong to ZeroMQ's threads.
struct Piece {
  PiecePool* pool = nullptr;
  OfferUse offered;
  std::shared_ptr<Peer> peer;  // second owner: the service thread
  Buffer gathered;             // kPieceBytes long, for pieces that are gathered; untouched before the first of them
};

// Resource; thread-safe.
class PiecePool {
 public:
  PiecePool(OfferBook& book, const WakeUp& service) : book_(book), service_(service) {}

  // The function by which ZeroMQ frees a frame: called, on a thread of ZeroMQ's, when the frame has left. `piece` is a
  // Piece.
  static void End(void* data, void* piece);
  struct EndPiece {
    void operator()(Piece* piece) const { End(nullptr, piece); }
  };
  // A piece to fill, which ends unless it is handed over. It counts as under way for the offer and the peer from now
  // on. Null if the offer has been removed. Throws kResourceExhausted.
  using Filling = std::unique_ptr<Piece, EndPiece>;
  Filling Begin(const std::shared_ptr<Offered>& offered, const std::shared_ptr<Peer>& peer);
  // To be called when the piece is filled and a frame is made that ends it, before ZeroMQ gets that.
  static void HandOver(Filling piece);
  // Cuts the connection of every peer that holds a piece of the offer.
  void Cut(const std::shared_ptr<Offered>& offered);

 private:
  void Recycle(Piece& piece);

  OfferBook& book_;
  const WakeUp& service_;
  HostMemory memory_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Piece>> under_way_;  // guarded by mutex_
  std::vector<std::unique_ptr<Piece>> spare_;      // guarded by mutex_; their buffers stay faulted in
};

}  // namespace layercast::zmq_channel
