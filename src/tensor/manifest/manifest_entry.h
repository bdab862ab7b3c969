// Reads tensors' bytes for what a manifest says of them. Used by publishers on what they send, by engines on what they
// load.
#pragma once

#include "layercast/tensor.h"
#include "src/base/threads/worker_pool.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {

// Throws kInvalidArgument, naming the tensor, if it has no bytes. Used on tensors that a host program hands over.
void CheckHasBytes(const std::string& name, const TensorView& tensor);
// As CheckHasBytes, and throws kUnsupported if the tensor lies on a device. Used before the host reads it.
void CheckReadable(const std::string& name, const TensorView& tensor);

// Throws kCorrupt, naming the tensor and the index of its element number `element`, row-major.
[[noreturn]] void ThrowNonFinite(const std::string& name, const TensorView& tensor, std::int64_t element);

// Reads a host tensor, after CheckReadable. Throws kCorrupt, naming the tensor and the index of its first NaN or
// infinity.
TensorSummary SummaryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool);
// What SummaryOf gives, together with the tensor's spec.
ManifestEntry EntryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool);

}  // namespace layercast
