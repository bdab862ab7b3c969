#include "src/transport/channel/carried_offer.h"

#include <utility>

namespace layercast {

CarriedOffer::CarriedOffer(Offer offer, std::span<OfferingEnd* const> ends) : id_(offer.id) {
  for (const OfferingEnd* end : ends) {
    const auto mappings = end->MappingsOf(offer.tensors);
    offer.mappings.insert(offer.mappings.end(), mappings.begin(), mappings.end());
  }
  ends_.reserve(ends.size());
  try {
    for (OfferingEnd* end : ends) {
      end->Add(offer);
      ends_.push_back(end);
    }
  } catch (...) {
    Remove();
    throw;
  }
}

CarriedOffer::~CarriedOffer() { Remove(); }

CarriedOffer::CarriedOffer(CarriedOffer&& other) noexcept : id_(other.id_), ends_(std::exchange(other.ends_, {})) {}

void CarriedOffer::Remove() {
  for (OfferingEnd* end : ends_) end->Remove(id_);
}

}  // namespace layercast
