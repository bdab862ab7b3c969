// What the channels between GPUs (nccl, cuda_ipc) need of a device: memory in which bytes wait between copies, and
// ordered queues of copies, into which NCCL's transfers and CUDA's events go as well. cuda_channel_device.h implements
// it by CUDA; tests simulate it in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "layercast/memory.h"
#include "src/device/cuda/row_copy.h"
#include "src/tensor/region.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace layercast {

using DeviceUuid = std::array<std::byte, 16>;

// An ordered queue of copies and transfers. Resource; one thread only. Nothing but the destructor waits for the device.
class CopyStream {
 public:
  // Returns when nothing that was queued runs any more. Transfers that wait for a peer must have been aborted before.
  virtual ~CopyStream() = default;
  // Queues a copy. Here and in CopyRows, the device must reach source and destination by itself.
  virtual void Copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Queues a copy of all rows, packed, to `to`: by one call where CUDA has a call for rows that lie like these.
  void CopyRows(std::byte* to, const RegionView& from);
  // Marks the place behind everything that is queued now. Throws what went wrong in the stream.
  virtual std::uint64_t Mark() = 0;
  // Whether the stream has got to that mark; never waits. Throws what went wrong in the stream.
  virtual bool Reached(std::uint64_t mark) = 0;
  virtual CUstream_st* handle() const = 0;

 private:
  // Called only with rows for which HowToCopyRows says kPitched.
  virtual void CopyPitched(std::byte* to, const RegionView& from) = 0;
};

inline void CopyStream::CopyRows(std::byte* to, const RegionView& from) {
  switch (HowToCopyRows(from.row_bytes, from.rows, from.stride)) {
    case RowCopy::kNone: return;
    case RowCopy::kOneRun: return Copy(to, from.base, from.num_bytes());
    case RowCopy::kPitched: return CopyPitched(to, from);
    case RowCopy::kSingly: break;
  }
  for (std::size_t row = 0; row < from.rows; ++row) Copy(to + row * from.row_bytes, from.row(row), from.row_bytes);
}

// Resource; thread-safe; outlives its streams and its memory.
class ChannelDevice {
 public:
  virtual ~ChannelDevice() = default;
  // Identifies the device among all devices in the world.
  virtual DeviceUuid uuid() const = 0;
  virtual std::unique_ptr<CopyStream> MakeStream() = 0;
  virtual MemoryResource& device_memory() = 0;
  virtual MemoryResource& pinned_memory() = 0;  // host memory that the device reaches
  // Whether the device reaches memory at this address by itself. If not, the host must copy it to, or from, pinned
  // memory.
  virtual bool Reaches(const std::byte* address) const = 0;
  // Runs `call` while this is the calling thread's current device.
  virtual void OnDevice(const std::function<void()>& call) = 0;
};

}  // namespace layercast
