// The offers of a publisher whose channel copies, and how many pieces of each are on their way to receivers: until
// those have left, or their connections are cut, the offered memory is read. Remove waits here for that. Thread-safe.
#pragma once

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

#include "src/base/wake_up.h"
#include "src/transport/channel.h"

namespace layercast {

// An offer that requests may refer to while it is being removed.
struct Offered {
  std::vector<OfferedTensor> tensors;
  bool removed = false;              // guarded by the book's mutex
  std::size_t pieces_under_way = 0;  // guarded by the book's mutex
};

class OfferBook {
 public:
  // Ends the connections that still hold pieces of this offer, now or soon; called again until none does.
  using Cut = std::function<void(const std::shared_ptr<Offered>&)>;

  // `channel` opens every message ("zmq"). `service` is woken when an offer goes: what waits to be sent is refused
  // then.
  OfferBook(std::string channel, const WakeUp& service) : channel_(std::move(channel)), service_(service) {}

  void Add(const Offer& offer);
  // Takes the offer off the list, and returns it when no piece of it is on its way; null: it was not there. Peers that
  // hold one longer than a second are cut.
  std::shared_ptr<Offered> Remove(std::uint64_t offer_id, const Cut& cut);
  // Throws kNotFound.
  std::shared_ptr<Offered> Find(std::uint64_t offer_id) const;

  // A piece sets out: false when the offer has been removed. Every true is followed by one End.
  bool Begin(Offered& offered);
  void End(Offered& offered);

 private:
  const std::string channel_;
  const WakeUp& service_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, std::shared_ptr<Offered>> offers_;  // guarded by mutex_
};

}  // namespace layercast
