// Handles by which other processes open memory and events, of whichever of CUDA's types.
#pragma once

#include <driver_types.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "tests/simulated_cuda/simulated_memory.h"

namespace simulated_cuda {

struct HandleBytes {
  FileOfProcess file;
  std::size_t size;
};

template <class Handle>
Handle HandleOf(int file, std::size_t size) {
  const HandleBytes bytes{NameFile(file), size};
  Handle handle{};
  static_assert(sizeof bytes <= sizeof handle);
  std::memcpy(&handle, &bytes, sizeof bytes);
  return handle;
}

// The process that made a handle cannot open it.
template <class Handle>
cudaError_t OpenHandle(const Handle& handle, SharedMemory& memory) {
  HandleBytes bytes;
  std::memcpy(&bytes, &handle, sizeof bytes);
  if (bytes.file.process == ::getpid()) return cudaErrorDeviceUninitialized;
  const int file = OpenFile(bytes.file);
  if (file < 0) return cudaErrorInvalidResourceHandle;
  if (SizeOfShared(file) == bytes.size) memory = MapShared(file, bytes.size);
  if (memory.base != nullptr) return cudaSuccess;
  ::close(file);
  return cudaErrorInvalidResourceHandle;
}

}  // namespace simulated_cuda
