// Kernel tensors that this rank has served before, from a copy of its own. Used by the rank's process.
#pragma once

#include <memory>
#include <vector>

#include "layercast/reload_source.h"

namespace layercast {

// `specs` are of the iterator's tensors: all of the rank's kernel tensors, derived ones included, under the name of the
// version that they were. The buffers must have `served_digest` afterwards, as they had.
ReloadSource FromKept(std::unique_ptr<WeightsIterator> tensors, std::vector<TensorSpec> specs, Version version,
                      Digest served_digest);

}  // namespace layercast
