// An immutable copy of a version's tensors in memory that channels can hand over, and its manifest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "layercast/publisher.h"
#include "src/base/worker_pool.h"
#include "src/tensor/manifest.h"
#include "src/transport/channel.h"

namespace layercast {

// Move-only.
struct Snapshot {
  Manifest manifest;
  std::vector<OfferedTensor> tensors;               // by manifest index
  std::vector<Buffer> copies;                       // the memory, unless it is borrowed
  std::vector<std::shared_ptr<const void>> owners;  // of borrowed tensors; the second owner is their source
};

// Walks the weights once; copies each tensor (or keeps it, when the weights are borrowed), and reads it for its digest
// and largest magnitude. Of a version that several publishers hold, `part` may be of no tensor. Throws kCorrupt naming
// tensor and index on NaN or infinity; kInvalidArgument on a repeated name, on a tensor that was declared and not
// yielded, or differently, and on weights without a tensor. `known`: the layout is probably that.
Snapshot TakeSnapshot(const PublishOptions& options, const Weights& weights,
                      std::shared_ptr<const ManifestLayout> known, MemoryResource& memory, WorkerPool& pool);

}  // namespace layercast
