// Reads captured buffers in a device's memory back. Writing them is the commit stage's job (commit.h). Used by
// CapturedBuffers.
#pragma once

#include <memory>
#include <mutex>

#include "engine_side/reload/device/reload_stream.h"
#include "layercast/captured_buffers.h"
#include "src/base/memory/caching_memory.h"
#include "src/device/download.h"
#include "src/device/gathered_bytes.h"

namespace layercast {

inline bool IsOnDevice(const CapturedBuffer& buffer) { return buffer.device.kind != Device::Kind::kHost; }

// Resource; thread-safe: readers take turns on a stream of this object's own.
class CapturedOnDevice {
 public:
  CapturedOnDevice(OpenReloadStream open, const Device& device)
      : open_(std::move(open)), device_(device), stream_(open_(device)), download_(*stream_, kBlockBytes) {}

  // Opens a stream for whoever writes the buffers.
  std::shared_ptr<ReloadStream> OpenStream() const { return open_(device_); }

  void Read(const CapturedBuffer& buffer, std::span<std::byte> bytes);
  // Computes one digest for each buffer, of its bytes in row-major order.
  void Digests(std::span<const CapturedBuffer* const> buffers, std::span<Digest> digests);

 private:
  // The bytes, in row-major order, of a buffer that is not one contiguous run.
  GatheredBytes Gathered(const CapturedBuffer& buffer);

  static constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

  const OpenReloadStream open_;
  const Device device_;
  std::mutex mutex_;
  const std::shared_ptr<ReloadStream> stream_;  // its opener may share it, but with nobody else
  Download download_;                           // guarded by mutex_, as the stream and scratch_ are
  CachingMemory scratch_{stream_->memory()};
};

}  // namespace layercast
