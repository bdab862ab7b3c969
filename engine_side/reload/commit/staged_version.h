// What a reload has brought as far as it can be brought before a commit. Passed from the stager to the receiver.
#pragma once

#include <optional>

#include "layercast/checkpoint_source.h"
#include "layercast/version.h"

namespace layercast {

// A path that can be read again (FromOrigin). Value.
struct Origin {
  CheckpointSource source;
  bool is_checkpoint_format = true;
};

// A whole version that the committer holds, ready to be committed. Value.
struct StagedVersion {
  Version version;
  Digest digest;                   // what the captured buffers will read back once it is committed
  std::optional<Origin> origin{};  // if it came from a path
};

}  // namespace layercast
