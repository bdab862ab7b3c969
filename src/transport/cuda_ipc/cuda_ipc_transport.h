// Chunks between GPU memory of one host: the publisher's arena is mapped by receivers, which copy from it. FORMAT.md
// has the messages.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "src/transport/channel.h"
#include "src/transport/cuda_ipc/driver.h"

namespace layercast {
namespace cuda_ipc_channel {

inline constexpr std::string_view kAddressPrefix = "cuda_ipc://";

// What the channel stands on, of one device. Owned together by the transport and the ends that it made, which may
// outlive it.
struct CudaIpcParts {
  std::shared_ptr<IpcDriver> driver;
  std::shared_ptr<ChannelDevice> device;
};

// CUDA device `device`. Throws kUnsupported, saying what is missing.
CudaIpcParts OpenCudaIpcParts(int device);

}  // namespace cuda_ipc_channel

// On that device; none: on the one that is the calling thread's when the channel is asked for something first.
std::unique_ptr<Transport> MakeCudaIpcTransport(std::optional<int> device = std::nullopt);
// `open` is called once; what it throws is why the channel cannot be used here.
std::unique_ptr<Transport> MakeCudaIpcTransport(std::function<cuda_ipc_channel::CudaIpcParts()> open);

}  // namespace layercast
