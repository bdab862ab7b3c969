// Makes a tensor's manifest entry by reading its bytes: publishers for what they send, engines for what they load.
#pragma once

#include "layercast/tensor.h"
#include "src/base/worker_pool.h"
#include "src/tensor/manifest.h"

namespace layercast {

// Host tensors. Throws kCorrupt naming the tensor and the index of its first NaN or infinity.
ManifestEntry EntryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool);

}  // namespace layercast
