// What the failpoint `send.chunk=corrupt` gives one session instead of a snapshot: the same offer, with one byte
// flipped, as if on the way. The version itself stays whole, for everybody else and for the next try.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "layercast/memory.h"
#include "src/session/link/offered_version.h"
#include "src/transport/channel/carried_offer.h"
#include "src/wire/schedule.h"

namespace layercast {

// Resource. What it borrows outlives it.
class CorruptedOffer {
 public:
  // Flips the first byte of `chunk` in a copy of its tensor. The copy lies in `arena`: a channel that hands over its
  // own memory without copying can carry it too. Throws kUnsupported where the version lies on a device.
  CorruptedOffer(const OfferedVersion& version, std::span<const Region> chunk, std::uint64_t id, MemoryResource& arena,
                 std::span<OfferingEnd* const> ends);

  std::uint64_t id() const { return offer_->id(); }

 private:
  Buffer tensor_;
  std::optional<CarriedOffer> offer_;  // goes before the tensor
};

}  // namespace layercast
