#include "src/session/offer/corrupted_offer.h"

#include <algorithm>

#include "layercast/error.h"

namespace layercast {

CorruptedOffer::CorruptedOffer(const OfferedVersion& version, std::span<const Region> chunk, std::uint64_t id,
                               MemoryResource& arena, std::span<OfferingEnd* const> ends) {
  if (version.offer().device.kind != Device::Kind::kHost) {
    throw Error(ErrorCode::kUnsupported, "failpoint send.chunk corrupts versions in host memory alone, and " +
                                             version.manifest().version().ToString() + " lies on a device");
  }
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
