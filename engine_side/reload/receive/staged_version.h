// What a reload has brought as far as it can be brought before a commit. Passed from the stager to the receiver.
#pragma once

#include <memory>
#include <optional>

#include "engine_side/reload/sources/version_source.h"
#include "layercast/version.h"
#include "src/session/deltas/source_copy.h"

namespace layercast {

// A whole version that the committer holds, ready to be committed. Value.
struct StagedVersion {
  Version version;
  Digest digest;                   // what the captured buffers will read back once it is committed
  Digest clean;                    // the same without the version's noise
  std::optional<Origin> origin{};  // if its source can be read again
  // Its bytes as they came, if the receiver keeps them; the other owners are what serves it, and sessions.
  std::shared_ptr<const SourceCopy> source{};
};

}  // namespace layercast
