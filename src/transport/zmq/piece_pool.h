// Every piece that is on its way through ZeroMQ, which may read the offered memory long after a send returned.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "layercast/memory.h"
#include "src/base/wake_up.h"
#include "src/transport/offer_book.h"
#include "src/transport/zmq/peer.h"

namespace layercast::zmq_channel {

class PiecePool;

// A piece on its way. Between HandOver and the end of both frames it belongs to ZeroMQ.
struct Piece {
  PiecePool* pool = nullptr;
  std::shared_ptr<Offered> offered;  // second owner: the book
  std::shared_ptr<Peer> peer;        // second owner: the service thread
  std::vector<std::byte> header;
  Buffer gathered;  // kPieceBytes, untouched until a piece is gathered
  std::atomic<int> frames{0};
};

class PiecePool {
 public:
  PiecePool(OfferBook& book, const WakeUp& service) : book_(book), service_(service) {}

  // A piece to fill, counted for the offer and the peer from here on; null when the offer has been removed.
  Piece* Begin(const std::shared_ptr<Offered>& offered, const std::shared_ptr<Peer>& peer);
  // The piece is filled, and its two frames go to ZeroMQ next.
  static void HandOver(Piece& piece);
  // One frame has left. ZeroMQ's free function: called on its own thread. `piece` is a Piece.
  static void EndFrame(void* data, void* piece);
  // Cuts the connection of every peer that holds a piece of the offer.
  void Cut(const std::shared_ptr<Offered>& offered);

 private:
  void End(Piece& piece);

  OfferBook& book_;
  const WakeUp& service_;
  HostMemory memory_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Piece>> under_way_;  // guarded by mutex_
  std::vector<std::unique_ptr<Piece>> spare_;      // guarded by mutex_; keeps buffers that are faulted in
};

}  // namespace layercast::zmq_channel
