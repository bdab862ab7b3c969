// Makes a tensor's manifest entry by reading its bytes: publishers for what they send, engines for what they load.
#pragma once

#include "layercast/tensor.h"
#include "src/base/worker_pool.h"
#include "src/tensor/manifest.h"

namespace layercast {

// For whoever is about to read a tensor that a host program gave. Throws kInvalidArgument naming a tensor without
// bytes, kUnsupported one on a device.
void CheckReadable(const std::string& name, const TensorView& tensor);

// Host tensors, checked so. Throws kCorrupt naming the tensor and the index of its first NaN or infinity.
ManifestEntry EntryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool);

}  // namespace layercast
