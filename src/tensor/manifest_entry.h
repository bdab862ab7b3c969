// What a manifest says of a tensor's bytes, by reading them: publishers for what they send, engines for what they load.
#pragma once

#include "layercast/tensor.h"
#include "src/base/worker_pool.h"
#include "src/tensor/manifest.h"

namespace layercast {

// For whoever was given a tensor by a host program. Throws kInvalidArgument naming a tensor without bytes.
void CheckHasBytes(const std::string& name, const TensorView& tensor);
// For whoever is about to read it, too: throws kUnsupported where it lies on a device.
void CheckReadable(const std::string& name, const TensorView& tensor);

// kCorrupt, naming the tensor and the index of that element, row-major.
[[noreturn]] void ThrowNonFinite(const std::string& name, const TensorView& tensor, std::int64_t element);

// Host tensors, checked so. Throws kCorrupt naming the tensor and the index of its first NaN or infinity.
TensorSummary SummaryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool);
// The same, with the tensor's form.
ManifestEntry EntryOf(const std::string& name, const TensorView& tensor, WorkerPool& pool);

}  // namespace layercast
