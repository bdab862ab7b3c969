// Segments by CUDA's legacy handles: blocks of cudaMalloc, which other processes open. Used where there is no VMM.
#pragma once

#include <cstddef>
#include <memory>

#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

// Make and map a segment on CUDA device `device`. Both throw as IpcDriver does.
std::unique_ptr<OwnSegment> MakeLegacySegment(int device, std::size_t bytes);
std::unique_ptr<const MappedSegment> MapLegacySegment(int device, const IpcHandle& handle, std::size_t bytes);

}  // namespace layercast::cuda_ipc_channel
