// A publisher's tensors on devices: copied, described and digested where they lie. Nothing but digests and what only
// the host computes leaves the device.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "layercast/memory.h"
#include "src/base/memory/caching_memory.h"
#include "src/base/threads/worker_pool.h"
#include "src/device/device_digests.h"
#include "src/device/device_stream.h"
#include "src/device/download.h"
#include "src/device/upload_ring.h"
#include "src/session/link/device_bytes.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {

// Resource; thread-safe: callers take turns. A stream for each device is opened when it is first needed: throws
// kUnsupported, saying why, where there is no such device.
class DeviceTensors final : public DeviceBytes {
 public:
  DeviceTensors(OpenDeviceStream open, WorkerPool& pool) : open_(std::move(open)), pool_(pool) {}

  // A copy in memory of that device, of a tensor there or on the host.
  Buffer CopyTo(const Device& device, const TensorView& tensor);
  // Summaries of tensors of one device, as SummaryOf makes them on the host, in their order. Throws what it
  // throws, of the first tensor that is wrong.
  std::vector<TensorSummary> SummariesOf(const Device& device, std::span<const NamedTensor> tensors);

  void ToHost(const Device& device, const std::byte* from, std::size_t bytes, std::byte* to) override;
  std::vector<float> AmaxOver(const Device& device, const TensorSpec& spec, const std::byte* data,
                              KeptAxes kept) override;
  std::vector<Digest> DigestsOf(const Device& device, std::span<const std::vector<RegionView>> chunks) override;

 private:
  // Of versions: they go when nobody reads them any more, on whichever thread finds that.
  class Copies final : public MemoryResource {
   public:
    Copies(MemoryResource& memory, std::mutex& mutex) : memory_(memory), mutex_(mutex) {}
    std::byte* Allocate(std::size_t bytes) override {
      const std::scoped_lock lock(mutex_);
      return memory_.Allocate(bytes);
    }
    void Deallocate(std::byte* address, std::size_t bytes) noexcept override {
      const std::scoped_lock lock(mutex_);
      memory_.Deallocate(address, bytes);
    }
    Device device() const override { return memory_.device(); }

   private:
    MemoryResource& memory_;
    std::mutex& mutex_;
  };
  // What is known of one device.
  struct Place {
    Place(std::shared_ptr<DeviceStream> opened, std::mutex& mutex);
    const std::shared_ptr<DeviceStream> stream;  // whoever opened it may share it
    Copies copies;
    CachingMemory scratch;
    CachingMemory pinned;
    UploadRing uploads;
    Download download;
  };
  Place& On(const Device& device);
  Copies& CopiesOn(const Device& device);
  void ToHost(Place& place, const std::byte* from, std::size_t bytes, std::byte* to);
  TensorSummary SummaryByHost(Place& place, const NamedTensor& named);

  const OpenDeviceStream open_;
  WorkerPool& pool_;
  std::mutex mutex_;
  std::map<int, Place> places_;  // by index; guarded by mutex_, as the streams and memory in it
};

}  // namespace layercast
