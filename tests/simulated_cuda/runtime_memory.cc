// The CUDA runtime's functions for memory that Layercast calls: allocations, pools, copies, and blocks that other
// processes open. A block is as long as was asked for, so that AddressSanitizer sees what reaches past its end.
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/simulated_cuda/simulated_call.h"
#include "tests/simulated_cuda/simulated_ipc_handle.h"
#include "tests/simulated_cuda/simulated_memory.h"

using namespace simulated_cuda;

// What cudaMemPool_t points to.
struct CUmemPoolHandle_st {
  int device = 0;
  std::atomic<std::uint64_t> reserved = 0;
};

namespace {

constexpr std::size_t kAlignment = 512;  // that of CUDA's own allocations

void* Allocate(std::size_t bytes, cudaMemoryType type, int device) {
  if (bytes == 0 || bytes > kDeviceBytes) return nullptr;
  void* address = nullptr;
  if (::posix_memalign(&address, kAlignment, bytes) != 0) return nullptr;
  Know({static_cast<std::byte*>(address), bytes, type, device});
  return address;
}

void Free(void* address) {
  Forget(address);
  std::free(address);
}

// Blocks of cudaMalloc, and what other processes' handles have been opened to.
struct SharedBlocks {
  std::mutex mutex;
  std::map<const void*, SharedMemory> by_base;  // guarded by mutex
};

SharedBlocks& Shared() {
  static auto& blocks = *new SharedBlocks;
  return blocks;
}

void Keep(const SharedMemory& memory, int device) {
  const std::lock_guard lock(Shared().mutex);
  Shared().by_base[memory.base] = memory;
  Know({memory.base, memory.size, cudaMemoryTypeDevice, device});
}

cudaError_t LetGo(void* base) {
  const std::lock_guard lock(Shared().mutex);
  const auto found = Shared().by_base.find(base);
  if (found == Shared().by_base.end()) return cudaErrorInvalidValue;
  Forget(base);
  UnmapShared(found->second);
  Shared().by_base.erase(found);
  return cudaSuccess;
}

// Rows at one end of a copy.
struct Rows {
  std::byte* first;
  std::size_t pitch;
};

enum class Lies { kOnDevice, kPinned, kPageable };

Lies Where(const void* address) {
  const std::optional<KnownRange> range = Find(address);
  if (!range) return Lies::kPageable;
  return range->type == cudaMemoryTypeDevice ? Lies::kOnDevice : Lies::kPinned;
}

bool IsDirection(cudaMemcpyKind kind, Lies from, Lies to) {
  const bool from_device = from == Lies::kOnDevice;
  const bool to_device = to == Lies::kOnDevice;
  switch (kind) {
    case cudaMemcpyHostToDevice: return !from_device && to_device;
    case cudaMemcpyDeviceToHost: return from_device && !to_device;
    case cudaMemcpyDeviceToDevice: return from != Lies::kPageable && to != Lies::kPageable;
    case cudaMemcpyDefault: return true;
    default: return false;
  }
}

// Memory that is not pinned is read before the call returns, and written before it does.
cudaError_t CopyRows(const Rows& to, const Rows& from, std::size_t width, std::size_t rows, cudaMemcpyKind kind,
                     CUstream_st& stream) {
  if (width == 0 || rows == 0) return cudaSuccess;
  if (!IsInOneRange(to.first, (rows - 1) * to.pitch + width)) return cudaErrorInvalidValue;
  if (!IsInOneRange(from.first, (rows - 1) * from.pitch + width)) return cudaErrorInvalidValue;
  const Lies source = Where(from.first);
  const Lies destination = Where(to.first);
  if (!IsDirection(kind, source, destination)) return cudaErrorInvalidMemcpyDirection;
  const bool pageable = source == Lies::kPageable || destination == Lies::kPageable;
  if (pageable && stream.captured()) return cudaErrorStreamCaptureUnsupported;
  std::vector<std::byte> taken;
  Rows actual = from;
  if (source == Lies::kPageable) {
    taken.resize(width * rows);
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(taken.data() + row * width, from.first + row * from.pitch, width);
    }
    actual = {nullptr, width};
  }
  stream.Queue([=, taken = std::move(taken)] {
    const std::byte* const first = taken.empty() ? actual.first : taken.data();
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(to.first + row * to.pitch, first + row * actual.pitch, width);
    }
  });
  if (destination == Lies::kPageable) stream.Synchronize();
  return cudaSuccess;
}

Rows RowsAt(const void* first, std::size_t pitch) {
  return {const_cast<std::byte*>(static_cast<const std::byte*>(first)), pitch};
}

}  // namespace

extern "C" {

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return InContext([&](Context&) {
    *total = kDeviceBytes;
    *free = kDeviceBytes - BytesOfDriver();
    return cudaSuccess;
  });
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  const std::optional<KnownRange> range = Find(address);
  if (!range) return cudaSuccess;
  attributes->type = range->type;
  attributes->device = range->device;
  attributes->devicePointer = attributes->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned /*flags*/) {
  return OutsideCaptures([&](Context& context) {
    *address = Allocate(bytes, cudaMemoryTypeHost, context.device);
    return *address != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}
cudaError_t cudaFreeHost(void* address) {
  return OutsideCaptures([&](Context& context) {
    // A caller that relies on the wait loses its bytes: CUDA promises none.
    if (const std::optional<KnownRange> range = Find(address)) std::memset(address, kJunk, range->size);
    SynchronizeAll(context);
    Free(address);
    return cudaSuccess;
  });
}
cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return OutsideCaptures([&](Context& context) {
    const SharedMemory memory = MakeShared(bytes);
    if (memory.base == nullptr) return cudaErrorMemoryAllocation;
    Keep(memory, context.device);
    *address = memory.base;
    return cudaSuccess;
  });
}
cudaError_t cudaFree(void* address) {
  return OutsideCaptures([&](Context& context) {
    SynchronizeAll(context);
    return LetGo(address);
  });
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  return InContext([&](Context&) {
    const std::lock_guard lock(Shared().mutex);
    const auto found = Shared().by_base.find(address);
    if (found == Shared().by_base.end()) return cudaErrorInvalidValue;
    *handle = HandleOf<cudaIpcMemHandle_t>(found->second.file, found->second.size);
    return cudaSuccess;
  });
}
cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned /*flags*/) {
  return InContext([&](Context& context) {
    SharedMemory memory;
    const cudaError_t error = OpenHandle(handle, memory);
    if (error == cudaSuccess) Keep(memory, context.device);
    *address = memory.base;
    return error;
  });
}
cudaError_t cudaIpcCloseMemHandle(void* address) {
  return InContext([&](Context& context) {
    SynchronizeAll(context);
    return LetGo(address);
  });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return InContext([&](Context&) {
    const bool suits = properties->allocType == cudaMemAllocationTypePinned &&
                       properties->location.type == cudaMemLocationTypeDevice && IsDevice(properties->location.id);
    if (!suits) return cudaErrorInvalidValue;
    *pool = new CUmemPoolHandle_st{.device = properties->location.id};
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t /*pool*/, cudaMemPoolAttr /*attribute*/, void* /*value*/) {
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  if (attribute != cudaMemPoolAttrReservedMemCurrent) return Say(cudaErrorInvalidValue);
  *static_cast<std::uint64_t*>(value) = pool->reserved;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t /*pool*/, std::size_t /*keep*/) {
  return cudaSuccess;  // what is freed is never kept here
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t /*pool*/, const cudaMemAccessDesc* /*peers*/, std::size_t /*count*/) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static CUmemPoolHandle_st pools[kDevices] = {{.device = 0}, {.device = 1}};
  if (!IsDevice(device)) return Say(cudaErrorInvalidDevice);
  *pool = &pools[device];
  return cudaSuccess;
}
cudaError_t cudaMallocFromPoolAsync(void** address, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return OnStream(stream, [&] {
    if (stream->captured()) return cudaErrorStreamCaptureUnsupported;
    *address = Allocate(bytes, cudaMemoryTypeDevice, pool->device);
    if (*address == nullptr) return cudaErrorMemoryAllocation;
    // It is there in the order of this stream: on another one, without a wait, the junk may come later.
    stream->Queue([to = *address, bytes] { std::memset(to, kJunk, bytes); });
    pool->reserved += bytes;
    return cudaSuccess;
  });
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  return OnStream(stream, [&] {
    if (stream->captured()) return cudaErrorStreamCaptureUnsupported;  // CUDA could, and nobody here asks for it
    stream->Queue([address] { Free(address); }, CUstream_st::Does::kAlways);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return OnStream(stream, [&] { return CopyRows(RowsAt(to, bytes), RowsAt(from, bytes), bytes, 1, kind, *stream); });
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  return OnStream(stream, [&] {
    constexpr std::size_t kMaxPitch = (std::size_t{1} << 31) - 1;
    if (to_pitch > kMaxPitch || from_pitch > kMaxPitch) return cudaErrorInvalidPitchValue;
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
    return CopyRows(RowsAt(to, to_pitch), RowsAt(from, from_pitch), width, rows, kind, *stream);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return OnStream(stream, [&] {
    if (bytes == 0) return cudaSuccess;
    if (Where(to) == Lies::kPageable || !IsInOneRange(to, bytes)) return cudaErrorInvalidValue;
    stream->Queue([=] { std::memset(to, value, bytes); });
    return cudaSuccess;
  });
}

}  // extern "C"
