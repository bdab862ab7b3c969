// A device that this program plays, at its worst: nothing that is queued is done before somebody waits for it, and then
// no more than was waited for. Its memory cannot be touched in between, by whomever; pinned memory that is given back
// is overwritten at once, device memory in the order of its stream. So what only works when things happen early fails;
// and so does what a device would refuse: memory that it does not reach, elements that are not aligned.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "src/base/threads/worker_pool.h"
#include "tests/support/device/test_device.h"

namespace layercast::testing {

class DeferredStream;

class DeferredDevice final : public TestDevice {
 public:
  DeferredDevice();
  ~DeferredDevice() override;

  Device device() const override { return {Device::Kind::kCuda, 2}; }

  std::byte* Allocate(std::size_t bytes) override;
  OpenReloadStream Opener() override;
  void Carry(const RegionView& from, std::byte* to) override;
  std::size_t allocations() const override { return allocations_; }
  std::size_t peak_bytes() const override { return peak_bytes_; }
  std::size_t waits() const override { return waits_; }
  std::size_t bytes_brought() const override { return bytes_brought_; }

 private:
  friend class DeferredStream;
  // While one lives the device works, and its memory can be reached.
  class Working;

  bool Has(const std::byte* address, std::size_t bytes) const;

  void* mapped_ = nullptr;              // what memory_ lies in
  std::byte* memory_ = nullptr;         // begins with a huge page
  mutable std::recursive_mutex mutex_;  // of whoever works: streams of several threads take turns
  std::size_t used_ = 0;                // guarded by mutex_
  std::size_t given_bytes_ = 0;         // by streams; guarded by mutex_
  std::size_t peak_bytes_ = 0;          // guarded by mutex_
  std::atomic<std::size_t> allocations_ = 0;
  std::atomic<std::size_t> waits_ = 0;
  std::atomic<std::size_t> bytes_brought_ = 0;
};

class DeferredStream final : public ReloadStream {
 public:
  explicit DeferredStream(DeferredDevice& device) : device_(device) {}

  Device device() const override { return device_.device(); }
  MemoryResource& memory() override { return memory_; }
  MemoryResource& pinned() override { return pinned_; }
  void ReleaseFreed() override { Wait(Record()); }
  void Copy(const std::byte* from, std::byte* to, std::size_t bytes) override;
  void Pack(const RegionView& view, std::byte* to) override;
  void Fill(std::byte* to, std::byte value, std::size_t bytes) override;
  void Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const Walk& walk, std::int64_t first,
               std::int64_t count, std::uint64_t* fault) override;
  void Gather(DType dtype, const std::byte* from, const Walk& walk, std::int64_t first, std::int64_t count,
              std::byte* packed) override;
  void Zero(DType dtype, std::byte* to, const Walk& walk) override;
  void Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, std::uint64_t* fault) override;
  void Rescale(std::span<std::byte> codes, float from, float to) override;
  void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) override;
  void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                  std::byte* values) override;
  void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) override;
  void FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax, std::uint64_t* fault) override;
  void FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                    std::uint64_t* fault) override;
  void LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) override;
  void FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) override;
  Ticket Record() override;  // an operation too, as an event is: to wait for it costs, whatever was queued before
  void Wait(Ticket ticket) override;

 private:
  class Memory final : public MemoryResource {
   public:
    explicit Memory(DeferredStream& stream) : stream_(stream) {}
    std::byte* Allocate(std::size_t bytes) override;
    void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
    Device device() const override { return stream_.device(); }

   private:
    DeferredStream& stream_;
  };
  class Pinned final : public MemoryResource {
   public:
    explicit Pinned(DeferredStream& stream) : stream_(stream) {}
    std::byte* Allocate(std::size_t bytes) override;
    void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
    bool Has(const std::byte* address, std::size_t bytes) const;

   private:
    DeferredStream& stream_;
    std::vector<std::vector<std::byte>> blocks_;  // kept, whatever is given back
  };

  void Queue(std::function<void()> work);
  void ExpectReachable(const std::byte* address, std::size_t bytes) const;
  void ExpectWord(const std::uint64_t* fault) const;

  DeferredDevice& device_;
  Memory memory_{*this};
  Pinned pinned_{*this};
  WorkerPool pool_{1};
  std::deque<std::function<void()>> queue_;
  Ticket queued_ = 0;
  Ticket done_ = 0;
};

}  // namespace layercast::testing
