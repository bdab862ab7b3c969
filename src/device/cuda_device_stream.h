// DeviceStream by CUDA: copies are done by the copy engines, everything else by kernels. Available if the build has
// CUDA (LAYERCAST_HAVE_CUDA). Used by OpenCudaStream, and as a base of streams that do more. Includes nothing of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_stream.h"
#include "src/device/device_stream.h"

namespace layercast {

// Resource; one thread at a time. The base is virtual so that a stream with a derived interface can inherit everything
// here (engine_side/reload/device/cuda_reload_stream.cc).
class CudaDeviceStream : public virtual DeviceStream {
 public:
  // Loads the kernels that the stream starts.
  explicit CudaDeviceStream(int device);

  Device device() const override { return {Device::Kind::kCuda, stream_.device()}; }
  MemoryResource& memory() override { return memory_; }
  MemoryResource& pinned() override { return pinned_; }

  void Copy(const std::byte* from, std::byte* to, std::size_t bytes) override;
  void Pack(const RegionView& view, std::byte* to) override;
  void Fill(std::byte* to, std::byte value, std::size_t bytes) override;
  void FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax, std::uint64_t* fault) override;
  void FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                    std::uint64_t* fault) override;
  void FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) override;
  void LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) override;

  void ReleaseFreed() override { memory_.ReleaseFreed(); }
  Ticket Record() override;
  void Wait(Ticket ticket) override;

 protected:
  // The CUDA stream, on which a derived stream queues its own kernels.
  const CudaStream& stream() const { return stream_; }
  // Copies rows between places on the device, by one two-dimensional copy (src/device/cuda/row_copy.h).
  void CopyRows(const std::byte* from, std::size_t from_stride, std::byte* to, std::size_t to_stride,
                std::size_t row_bytes, std::size_t rows);

 private:
  struct Recorded {
    Ticket ticket;
    CudaEvent event;
  };
  void Forget();

  CudaStream stream_;
  CudaMemory memory_{stream_};
  PinnedMemory pinned_{stream_.device()};
  Ticket last_ = 0;
  std::deque<Recorded> recorded_;  // tickets that are not known to be reached
  std::vector<CudaEvent> spare_;
};

}  // namespace layercast
