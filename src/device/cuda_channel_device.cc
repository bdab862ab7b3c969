#include "src/device/cuda_channel_device.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/memory/caching_memory.h"
#include "src/device/cuda/call.h"
#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_stream.h"
#include "src/device/cuda/peer_pool.h"

namespace layercast {
namespace {

class CudaCopyStream final : public CopyStream {
 public:
  explicit CudaCopyStream(int device) : stream_(device) {}
  ~CudaCopyStream() override {
    try {
      stream_.Synchronize();
    } catch (const Error& error) {
      log::error("a stream of a channel's copies: {}", error.what());
    }
  }

  void Copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    const OnCudaDevice scope(stream_.device());
    CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.handle()), "cudaMemcpyAsync",
              stream_.device());
  }
  std::uint64_t Mark() override {
    if (spare_.empty()) spare_.emplace_back(stream_.device());
    spare_.back().Record(stream_);
    ahead_.push_back(std::move(spare_.back()));
    spare_.pop_back();
    return reached_ + ahead_.size();
  }
  bool Reached(std::uint64_t mark) override {
    while (reached_ < mark && ahead_.front().IsDone()) {
      spare_.push_back(std::move(ahead_.front()));
      ahead_.pop_front();
      ++reached_;
    }
    return reached_ >= mark;
  }
  CUstream_st* handle() const override { return stream_.handle(); }

 private:
  void CopyPitched(std::byte* to, const RegionView& from) override {
    const OnCudaDevice scope(stream_.device());
    CheckCuda(cudaMemcpy2DAsync(to, from.row_bytes, from.base, from.stride, from.row_bytes, from.rows,
                                cudaMemcpyDefault, stream_.handle()),
              "cudaMemcpy2DAsync", stream_.device());
  }

  CudaStream stream_;
  std::deque<CudaEvent> ahead_;  // marks that had not been reached when last asked about, oldest first
  std::vector<CudaEvent> spare_;
  std::uint64_t reached_ = 0;
};

// Device memory that any stream, and NCCL, may use at once. It is allocated and freed in the order of a stream of its
// own, because cudaMalloc and cudaFree would wait for all that runs on the device, including transfers that wait for
// their peers. Thread-safe.
class UnorderedMemory final : public MemoryResource {
 public:
  explicit UnorderedMemory(int device) : device_(device) {}
  std::byte* Allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (!opened_) opened_.emplace(device_);
    std::byte* const address = opened_->pool.Allocate(bytes, opened_->stream);
    opened_->stream.Synchronize();
    return address;
  }
  void Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept override {
    const std::lock_guard lock(mutex_);
    opened_->pool.Deallocate(address, opened_->stream);
  }
  Device device() const override { return {Device::Kind::kCuda, device_}; }

 private:
  struct Opened {
    explicit Opened(int device) : pool(device), stream(device) {}
    PeerPool pool;
    CudaStream stream;
  };
  const int device_;
  std::mutex mutex_;
  std::optional<Opened> opened_;  // guarded by mutex_; made at the first allocation
};

// Does not touch the device before it is asked for something: a context costs hundreds of megabytes of its memory.
class CudaChannelDevice final : public ChannelDevice {
 public:
  explicit CudaChannelDevice(int device) : device_(device), device_upstream_(device), pinned_upstream_(device) {}

  DeviceUuid uuid() const override {
    cudaDeviceProp properties{};
    CheckCuda(cudaGetDeviceProperties(&properties, device_), "cudaGetDeviceProperties", device_);
    DeviceUuid uuid;
    static_assert(sizeof(properties.uuid) == sizeof(uuid));
    std::memcpy(uuid.data(), &properties.uuid, uuid.size());
    return uuid;
  }
  std::unique_ptr<CopyStream> MakeStream() override { return std::make_unique<CudaCopyStream>(device_); }
  MemoryResource& device_memory() override { return device_memory_; }
  MemoryResource& pinned_memory() override { return pinned_memory_; }
  bool Reaches(const std::byte* address) const override {
    const OnCudaDevice scope(device_);
    cudaPointerAttributes attributes{};
    CheckCuda(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes", device_);
    return attributes.type != cudaMemoryTypeUnregistered;
  }
  void OnDevice(const std::function<void()>& call) override {
    const OnCudaDevice scope(device_);
    call();
  }

 private:
  const int device_;
  UnorderedMemory device_upstream_;
  PinnedMemory pinned_upstream_;
  // The next connection uses again what one has given back: freeing pinned memory waits for the whole device.
  CachingMemory device_memory_{device_upstream_};
  CachingMemory pinned_memory_{pinned_upstream_};
};

}  // namespace

int CurrentCudaDevice() {
  int device = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice", device);
  return device;
}

std::shared_ptr<ChannelDevice> MakeCudaChannelDevice(int device) { return std::make_shared<CudaChannelDevice>(device); }

}  // namespace layercast
