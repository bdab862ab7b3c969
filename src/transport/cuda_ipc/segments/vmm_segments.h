// Segments by VMM: allocations of the CUDA driver, which other processes import by a file descriptor. Used by
// cuda_driver.h.
#pragma once

#include <cstddef>
#include <memory>

#include "src/base/unique_fd.h"
#include "src/device/cuda/vmm.h"
#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

// Makes and maps segments on one device. Whoever calls these must have made that device the thread's current one
// (OnCudaDevice). Immutable; outlives the segments.
class VmmSegments {
 public:
  // Throws kUnsupported if the device has no VMM, or none that other processes can map.
  VmmSegments(const VmmFunctions& functions, int device);

  // Both throw as IpcDriver does. MakeSegment throws kUnsupported whatever call failed, unless memory has run out:
  // legacy handles may still do.
  std::unique_ptr<OwnSegment> MakeSegment(std::size_t bytes) const;
  std::unique_ptr<const MappedSegment> Map(UniqueFd descriptor, std::size_t bytes) const;

 private:
  const Vmm vmm_;
};

}  // namespace layercast::cuda_ipc_channel
