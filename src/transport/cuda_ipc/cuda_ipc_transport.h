// The transport between GPU memory of processes on one host: receivers map the publisher's arena, and copy from it.
// FORMAT.md has the messages.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "src/transport/channel/channel.h"
#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast {
namespace cuda_ipc_channel {

inline constexpr std::string_view kAddressPrefix = "cuda_ipc://";

// What the channel is built on, for one device. Owned together by the transport and the ends that it made, which may
// outlive it.
struct CudaIpcParts {
  std::shared_ptr<IpcDriver> driver;
  std::shared_ptr<ChannelDevice> device;
};

// The parts for CUDA device `device`. Throws kUnsupported, saying what is missing.
CudaIpcParts OpenCudaIpcParts(int device);

}  // namespace cuda_ipc_channel

// The transport on CUDA device `device`; if none is given, on the one that is the calling thread's when the channel is
// first used.
std::unique_ptr<Transport> MakeCudaIpcTransport(std::optional<int> device = std::nullopt);
// `open` is called once; what it throws is why the channel cannot be used here.
std::unique_ptr<Transport> MakeCudaIpcTransport(std::function<cuda_ipc_channel::CudaIpcParts()> open);

}  // namespace layercast
