// The offers of a publisher whose channel copies, and how many pieces of each are on their way to receivers. The
// offered memory is read until these pieces have left or their connections are cut; Remove waits for that. Used by zmq,
// ucx and nccl.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/net/wake_up.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// An offer of the book. It is shared with requests, which may refer to it even while it is being removed.
struct Offered {
  std::vector<OfferedTensor> tensors;
  bool removed = false;              // guarded by the book's mutex
  std::size_t pieces_under_way = 0;  // guarded by the book's mutex
  std::atomic<bool> overdue{false};  // removed long ago: whoever still holds pieces is to lose its connection
};

class OfferBook;

struct EndUse {
  OfferBook* book = nullptr;
  std::shared_ptr<Offered> offered;  // second owner: the book
  void operator()(Offered* used) const;
};

// A piece of an offer that is on its way: the offered memory may be read until this is destroyed.
using OfferUse = std::unique_ptr<Offered, EndUse>;

// Thread-safe.
class OfferBook {
 public:
  // Ends the connections that still hold pieces of this offer; called again until none does.
  using Cut = std::function<void(const std::shared_ptr<Offered>&)>;

  // `channel` ("zmq") opens every message. `service` wakes the service thread when an offer is removed, so that it
  // refuses what still waits to be sent.
  OfferBook(std::string channel, const WakeUp& service) : channel_(std::move(channel)), service_(service) {}

  void Add(const Offer& offer);
  // Takes the offer out of the book, waits until no piece of it is on its way, and returns it; null if it was not
  // there. After a second it calls `cut`, again and again, to end the connections of receivers that still hold pieces;
  // without it, the service does that, for it finds the offer overdue.
  std::shared_ptr<Offered> Remove(std::uint64_t offer_id, const Cut& cut = {});
  // Whether an offer has become overdue since the last call.
  bool TakeOverdue() { return overdue_.exchange(false); }
  // Throws kNotFound.
  std::shared_ptr<Offered> Find(std::uint64_t offer_id) const;

  // To be called before a piece is sent. Null: the offer has been removed, and must not be read.
  OfferUse Begin(const std::shared_ptr<Offered>& offered);

 private:
  friend struct EndUse;
  void End(Offered& offered);

  const std::string channel_;
  const WakeUp& service_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<Offered>> offers_;  // guarded by mutex_
  std::atomic<bool> overdue_{false};
};

}  // namespace layercast
