// Keeps one offer on several channels, from construction to destruction. Used by sessions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/transport/channel/channel.h"

namespace layercast {

// Resource. The ends and the offer's memory must outlive it.
class CarriedOffer {
 public:
  // Throws what an end's Add throws; by then no end has the offer.
  CarriedOffer(Offer offer, std::span<OfferingEnd* const> ends);
  ~CarriedOffer();
  CarriedOffer(CarriedOffer&& other) noexcept;
  CarriedOffer(const CarriedOffer&) = delete;
  CarriedOffer& operator=(const CarriedOffer&) = delete;

  std::uint64_t id() const { return id_; }

 private:
  void Remove();

  const std::uint64_t id_;
  std::vector<OfferingEnd*> ends_;  // those that have the offer
};

}  // namespace layercast
