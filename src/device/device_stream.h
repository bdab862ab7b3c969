// What both a publisher and a reload do to bytes on a device, one operation behind the other on one stream: all that is
// known of CUDA beyond cuda_device_stream.cc. Nothing is done when a call returns, and nothing is waited for but in
// Wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/tensor/axis_amax.h"
#include "src/tensor/region.h"

namespace layercast {

// Resource; one thread at a time. Addresses are of memory(), of other memory of that device, or, where a call says so,
// of pinned(); they stay as they are until the stream is past the operation.
class DeviceStream {
 public:
  // A place in the stream. Later ones are greater; 0 is where every stream has been.
  using Ticket = std::uint64_t;

  virtual ~DeviceStream() = default;
  virtual Device device() const = 0;
  // In this stream's order: what is given back may still be used by what was queued before, and what is taken by what
  // is queued behind.
  virtual MemoryResource& memory() = 0;
  // Host memory. Whoever takes some waits before it is written again or given back.
  virtual MemoryResource& pinned() = 0;

  // From or to pinned memory, or between places on the device.
  virtual void Copy(const std::byte* from, std::byte* to, std::size_t bytes) = 0;
  // Between places on the device, packed.
  virtual void Pack(const RegionView& view, std::byte* to) = 0;
  virtual void Fill(std::byte* to, std::byte value, std::size_t bytes) = 0;

  // The largest finite magnitude of packed f16, bf16 or f32, merged into `amax`. Where there is NaN or infinity among
  // them, the first is merged into `fault`, a word that DecodeCudaFault reads (cuda_fault.h). Both are device memory.
  virtual void FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax, std::uint64_t* fault) = 0;
  // The same over the middle dimension of packed elements, into `amax` [outer, last], which is 0 before.
  virtual void FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                            std::uint64_t* fault) = 0;
  // The index of the first NaN or infinity among packed elements (of integers: none), merged into `fault` in the same
  // way.
  virtual void FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) = 0;
  // The digests of the leaves of these bytes (src/base/digest.h): NumLeaves(bytes) of them, in device memory.
  virtual void LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) = 0;

  virtual Ticket Record() = 0;
  // The calling thread waits until the stream is there. Throws what went wrong on the way.
  virtual void Wait(Ticket ticket) = 0;
};

// A new stream of a device. Throws kUnsupported, saying why, where there is no such device.
using OpenDeviceStream = std::function<std::shared_ptr<DeviceStream>(const Device& device)>;
std::shared_ptr<DeviceStream> OpenCudaStream(const Device& device);

}  // namespace layercast
