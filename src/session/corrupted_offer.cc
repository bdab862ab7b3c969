#include "src/session/corrupted_offer.h"

#include <algorithm>

namespace layercast {

CorruptedOffer::CorruptedOffer(const OfferedVersion& version, std::span<const Region> chunk, std::uint64_t id,
                               MemoryResource& arena, std::span<OfferingEnd* const> ends) {
  Offer offer = version.offer();
  offer.id = id;
  OfferedTensor& tensor = offer.tensors[chunk.front().tensor];
  tensor_ = Buffer(arena, static_cast<std::size_t>(tensor.bytes));
  std::copy_n(tensor.data, tensor.bytes, tensor_.data());
  tensor_.data()[chunk.front().offset] ^= std::byte{1};
  tensor.data = tensor_.data();
  offer_.emplace(offer, CarriersOf(version, ends));
}

}  // namespace layercast
