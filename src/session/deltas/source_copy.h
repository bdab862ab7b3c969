// What a receiver keeps of the version that its engine serves: the bytes as its publishers had them, by chunk of the
// schedule, which is the base that the next version's deltas are of. Used by fetch sessions, and kept by the receiver,
// with which it moves on when a version is committed.
#pragma once

#include <memory>
#include <vector>

#include "layercast/version.h"
#include "src/session/chunks/kept_chunks.h"

namespace layercast {

// Value; what it shares does not change any more.
struct SourceCopy {
  // Of one publisher.
  struct Part {
    Version version;                           // as that publisher's manifest names it
    std::shared_ptr<const KeptChunks> chunks;  // the other owners are sessions that take deltas of it
  };
  std::vector<Part> parts;  // by the publishers' ranks
};

}  // namespace layercast
