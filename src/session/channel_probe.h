// A short measurement of a data channel before one is chosen: a receiver fetches bytes that both ends know, the way
// that a session would. docs/transports.md says what it is good for.
#pragma once

#include <cstddef>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/transport/channel.h"

namespace layercast {

// Every publisher offers kProbeOffer beside its versions: one tensor of so many bytes.
inline constexpr std::size_t kProbeBytes = std::size_t{16} << 20;

// The publisher's part: the memory that is offered.
class ProbeOffer {
 public:
  explicit ProbeOffer(MemoryResource& arena);
  Offer offer() const;

 private:
  Buffer bytes_;
};

// Bytes / 1e9 / seconds of fetching and digesting them, which is what a session's rate is of; of a link too slow for
// all of them by the deadline, of those that came. Closes the end. Throws what the channel throws (kNotFound: a
// publisher without a probe), kDeadlineExceeded when nothing came in time, and kCorrupt when other bytes did.
double MeasureChannel(FetchingEnd& end, MemoryResource& memory, Deadline deadline);

}  // namespace layercast
