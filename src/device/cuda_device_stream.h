// DeviceStream by CUDA: copies by the copy engines, all else by kernels. There where the build has CUDA
// (LAYERCAST_HAVE_CUDA); for OpenCudaStream, and for streams that do more. Includes nothing of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "src/cuda/memory.h"
#include "src/cuda/stream.h"
#include "src/device/device_stream.h"

namespace layercast {

// Resource; one thread at a time. The base is virtual so that the stream of a derived interface can take all this over
// (engine_side/device/cuda_reload_stream.cc).
class CudaDeviceStream : public virtual DeviceStream {
 public:
  // Loads the kernels that it starts.
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

  Ticket Record() override;
  void Wait(Ticket ticket) override;

 protected:
  // What a derived stream's own kernels are queued on.
  const CudaStream& stream() const { return stream_; }
  // Rows between places on the device, by one copy of two dimensions (src/cuda/row_copy.h).
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
  std::deque<Recorded> recorded_;  // not known to be done
  std::vector<CudaEvent> spare_;
};

}  // namespace layercast
