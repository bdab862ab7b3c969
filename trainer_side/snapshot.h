// An immutable copy of a version's tensors in memory that channels can hand over, and its manifest. Made by the
// publisher.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "layercast/publisher.h"
#include "src/base/threads/worker_pool.h"
#include "src/tensor/manifest/manifest.h"
#include "src/transport/channel/channel.h"
#include "trainer_side/device_tensors.h"
#include "trainer_side/kept_tensors.h"

namespace layercast {

// Resource; move-only.
struct Snapshot {
  Manifest manifest;
  std::vector<OfferedTensor> tensors;  // by manifest index
  Device device;                       // where all tensors lie
  // The memory, unless it is borrowed. The other owners are versions that have a tensor alike.
  std::vector<std::shared_ptr<const Buffer>> copies;
  std::vector<std::shared_ptr<const void>> owners;  // of borrowed tensors; the second owner is their source
};

// What snapshots are made with. Value; borrows all of it.
struct SnapshotPlaces {
  MemoryResource& host;
  DeviceTensors& device;
  // Whether tensors on that device stay there. If not, they are brought to the host.
  std::function<bool(const Device& device)> keeps = [](const Device& /*device*/) { return false; };
  WorkerPool& pool;
  KeptTensors* kept = nullptr;  // copies of other versions, which are used again; null: there are none
};

// Walks the weights once; copies each tensor (or keeps it, if the weights are borrowed), and reads it for its digest
// and largest magnitude. A copy in host memory of which another version has the same bytes is not kept: both have that
// one's. A version lies in one place, where its first tensor does. If several publishers hold the
// version, this one's part may have no tensor. `known` is a layout that the manifest's probably equals. Throws
// kCorrupt, naming tensor and index, on NaN or infinity; kInvalidArgument on a repeated name, on a tensor that was
// declared but not yielded, or declared otherwise, on borrowed tensors in several places, and on weights without a
// tensor.
Snapshot TakeSnapshot(const PublishOptions& options, const Weights& weights,
                      std::shared_ptr<const ManifestLayout> known, const SnapshotPlaces& places);

}  // namespace layercast
