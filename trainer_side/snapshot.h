// An immutable copy of a version's tensors in memory that channels can hand over, and its manifest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "layercast/publisher.h"
#include "src/base/worker_pool.h"
#include "src/tensor/manifest.h"
#include "src/transport/channel.h"
#include "trainer_side/device_tensors.h"

namespace layercast {

// Move-only.
struct Snapshot {
  Manifest manifest;
  std::vector<OfferedTensor> tensors;               // by manifest index
  Device device;                                    // where they all lie
  std::vector<Buffer> copies;                       // the memory, unless it is borrowed
  std::vector<std::shared_ptr<const void>> owners;  // of borrowed tensors; the second owner is their source
};

// Where snapshots are made. Borrows all of it.
struct SnapshotPlaces {
  MemoryResource& host;
  DeviceTensors& device;
  // Whether what lies on that device stays there; else it is brought to the host.
  std::function<bool(const Device& device)> keeps = [](const Device& /*device*/) { return false; };
  WorkerPool& pool;
};

// Walks the weights once; copies each tensor (or keeps it, when the weights are borrowed), and reads it for its digest
// and largest magnitude. A version lies in one place, where the first tensor does. Of a version that several publishers
// hold, `part` may be of no tensor. Throws kCorrupt naming tensor and index on NaN or infinity; kInvalidArgument on a
// repeated name, on a tensor that was declared and not yielded, or differently, on borrowed tensors in several places,
// and on weights without a tensor. `known`: the layout is probably that.
Snapshot TakeSnapshot(const PublishOptions& options, const Weights& weights,
                      std::shared_ptr<const ManifestLayout> known, const SnapshotPlaces& places);

}  // namespace layercast
