// What both a publisher and a reload do to bytes on a device, one operation after another on one stream. Their code
// knows CUDA only through this interface, which cuda_device_stream.cc implements. No operation is done when its call
// returns, and nothing but Wait waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/region.h"

namespace layercast {

// Resource; one thread at a time. Addresses are in memory(), in other memory of that device or, if a call says so, in
// pinned(). What they point to must stay as it is until the stream is past the operation.
class DeviceStream {
 public:
  // A place in the stream, which Record marks. Later places have greater tickets. Every stream has reached ticket 0.
  using Ticket = std::uint64_t;

  virtual ~DeviceStream() = default;
  virtual Device device() const = 0;
  // Device memory in this stream's order: freed memory may still be used by what was queued before, and new memory by
  // what is queued from now on.
  virtual MemoryResource& memory() = 0;
  // Waits, and gives what was freed of memory() back to the device, for other processes.
  virtual void ReleaseFreed() = 0;
  // Page-locked host memory. Whoever allocates some must wait for the stream before it is written again or freed.
  virtual MemoryResource& pinned() = 0;

  // Copies from or to pinned memory, or between places on the device.
  virtual void Copy(const std::byte* from, std::byte* to, std::size_t bytes) = 0;
  // Copies a view's bytes, packed, between places on the device.
  virtual void Pack(const RegionView& view, std::byte* to) = 0;
  virtual void Fill(std::byte* to, std::byte value, std::size_t bytes) = 0;

  // Finds the largest finite magnitude of packed f16, bf16 or f32, and merges it into `amax`. The first NaN or
  // infinity, if there is one, is merged into `fault`, a word that DecodeCudaFault reads (cuda_fault.h). Both are in
  // device memory.
  virtual void FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax, std::uint64_t* fault) = 0;
  // Finds the largest finite magnitudes of packed elements over the middle dimension of `split`, and puts them into
  // `amax` [outer, last], which must be 0 before. `fault` is as for FindAmax.
  virtual void FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                            std::uint64_t* fault) = 0;
  // Finds the first NaN or infinity among packed elements (integers have none), and merges its index into `fault`, as
  // FindAmax does.
  virtual void FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) = 0;
  // Computes the digests of the leaves of these bytes (src/base/digest/digest.h): NumLeaves(bytes) of them, into device
  // memory.
  virtual void LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) = 0;

  virtual Ticket Record() = 0;
  // Waits until the stream has reached the place. Throws what went wrong on the way.
  virtual void Wait(Ticket ticket) = 0;
};

// Opens a new stream of a device. Throws kUnsupported, saying why, if there is no such device.
using OpenDeviceStream = std::function<std::shared_ptr<DeviceStream>(const Device& device)>;
std::shared_ptr<DeviceStream> OpenCudaStream(const Device& device);

}  // namespace layercast
