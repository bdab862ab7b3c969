// What a channel between GPUs asks of a device: memory that bytes wait in between copies, and ordered queues of copies,
// of what NCCL brings (nccl) and of events (cuda_ipc). CUDA's in cuda_channel_device.h; tests play one in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "layercast/memory.h"
#include "src/cuda/row_copy.h"
#include "src/tensor/region.h"

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace layercast {

using DeviceUuid = std::array<std::byte, 16>;

// An ordered queue of copies and transfers. Nothing here waits but the destructor. One thread only.
class CopyStream {
 public:
  // Returns when nothing of what was queued runs any more: what waits for a peer has been aborted before.
  virtual ~CopyStream() = default;
  // Queues a copy; both sides are memory that the device reaches by itself, here and below.
  virtual void Copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Queues a copy, to `to`, packed, of all rows: by one call where CUDA has one for rows that lie like that.
  void CopyRows(std::byte* to, const RegionView& from);
  // A place behind all that is queued now, and whether the stream has got there. Both throw what went wrong in it.
  virtual std::uint64_t Mark() = 0;
  virtual bool Reached(std::uint64_t mark) = 0;
  virtual CUstream_st* handle() const = 0;

 private:
  // Only rows that a pitched copy may have (RowCopy::kPitched).
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

// Thread-safe; outlives its streams and memory.
class ChannelDevice {
 public:
  virtual ~ChannelDevice() = default;
  // Which device an end that is opened now works on, among all of the world.
  virtual DeviceUuid uuid() const = 0;
  virtual std::unique_ptr<CopyStream> MakeStream() = 0;
  virtual MemoryResource& device_memory() = 0;
  virtual MemoryResource& pinned_memory() = 0;  // of the host, and reached by the device
  // Whether the device reaches what lies there by itself; else the host must copy it to pinned memory, or from there.
  virtual bool Reaches(const std::byte* address) const = 0;
  // Runs `call` with this device as the calling thread's.
  virtual void OnDevice(const std::function<void()>& call) = 0;
};

}  // namespace layercast
