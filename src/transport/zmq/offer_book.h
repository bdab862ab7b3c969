// The publisher's offers, and every piece of them that is on its way through ZeroMQ, which may read the offered memory
// long after a send returned. Remove waits here until it does not. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/channel.h"
#include "src/transport/wake_fd.h"
#include "src/transport/zmq/peer.h"

namespace layercast::zmq_channel {

// An offer that requests may refer to while it is being removed.
struct Offered {
  std::vector<OfferedTensor> tensors;
  bool removed = false;              // guarded by the book's mutex
  std::size_t pieces_under_way = 0;  // guarded by the book's mutex
};

class OfferBook;

// A piece on its way. Between Begin and the end of both frames it belongs to ZeroMQ.
struct Piece {
  OfferBook* book = nullptr;
  std::shared_ptr<Offered> offered;  // second owner: the book
  std::shared_ptr<Peer> peer;        // second owner: the service thread
  std::vector<std::byte> header;
  Buffer gathered;  // kPieceBytes, untouched until a piece is gathered
  std::atomic<int> frames{0};
};

class OfferBook {
 public:
  explicit OfferBook(const WakeFd& service) : service_(service) {}

  void Add(const Offer& offer);
  // Takes the offer off the list, and returns when no piece of it is on its way. Cuts the connection of peers that hold
  // one longer than `grace`.
  void Remove(std::uint64_t offer_id, std::chrono::milliseconds grace);
  // Throws kNotFound.
  std::shared_ptr<Offered> Find(std::uint64_t offer_id) const;

  // A piece to fill, counted for the offer and the peer from here on; null when the offer has been removed.
  Piece* Begin(const std::shared_ptr<Offered>& offered, const std::shared_ptr<Peer>& peer);
  // The piece is filled, and its two frames go to ZeroMQ next.
  static void HandOver(Piece& piece);
  // One frame has left. ZeroMQ's free function: called on its own thread. `piece` is a Piece.
  static void EndFrame(void* data, void* piece);

 private:
  void End(Piece& piece);

  const WakeFd& service_;
  HostMemory memory_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<Offered>> offers_;  // guarded by mutex_
  std::vector<std::unique_ptr<Piece>> under_way_;             // guarded by mutex_
  std::vector<std::unique_ptr<Piece>> spare_;                 // guarded by mutex_; keeps buffers that are faulted in
};

}  // namespace layercast::zmq_channel
