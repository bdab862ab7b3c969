// A short measurement of a data channel before one is chosen: a receiver fetches bytes that both ends know, as a
// session would. Used by the channel chooser. docs/transports.md says what it is good for.
#pragma once

#include <cstddef>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// The size of the one tensor of kProbeOffer, which publishers offer beside their versions.
inline constexpr std::size_t kProbeBytes = std::size_t{16} << 20;

// The publisher's part: the memory that is offered. Resource.
class ProbeOffer {
 public:
  explicit ProbeOffer(MemoryResource& arena);
  Offer offer() const;

 private:
  Buffer bytes_;
};

// The channel's rate in GB/s: bytes / 1e9 / seconds of fetching and digesting them, as a session's rate is defined. If
// the link is too slow for all bytes by the deadline, the rate is that of the bytes that came. Closes the end. Throws
// what the channel throws (kNotFound if the publisher has no probe), kDeadlineExceeded if nothing came in time, and
// kCorrupt if other bytes came.
double MeasureChannel(FetchingEnd& end, MemoryResource& memory, Deadline deadline);

}  // namespace layercast
