// CUDA's handles as the bytes that a message carries. For this folder's sources that call CUDA.
#pragma once

#include <cstring>

#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

IpcHandle AsBytes(const auto& handle) {
  IpcHandle bytes;
  static_assert(sizeof(handle) == sizeof(bytes));
  std::memcpy(bytes.data(), &handle, bytes.size());
  return bytes;
}

template <typename Handle>
Handle FromBytes(const IpcHandle& bytes) {
  Handle handle;
  static_assert(sizeof(handle) == sizeof(bytes));
  std::memcpy(&handle, bytes.data(), bytes.size());
  return handle;
}

}  // namespace layercast::cuda_ipc_channel
