// The last device of this machine: where there are several, a call that is made without saying on which one goes to
// another, and fails.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "src/base/memory/counting_memory.h"
#include "src/device/cuda/call.h"
#include "src/device/cuda/cuda_memory.h"
#include "src/device/cuda/cuda_probe.h"
#include "tests/support/device/test_device.h"

namespace layercast::testing {
namespace {

// A stream, counted.
class CountedStream final : public ReloadStream {
 public:
  using Count = std::atomic<std::size_t>;  // by streams of several threads

  CountedStream(std::shared_ptr<ReloadStream> stream, Count& allocations, Count& waits, Count& bytes_brought)
      : stream_(std::move(stream)), allocations_(allocations), waits_(waits), bytes_brought_(bytes_brought) {}
  ~CountedStream() override { allocations_ += memory_.allocations() + pinned_.allocations(); }

  Device device() const override { return stream_->device(); }
  MemoryResource& memory() override { return memory_; }
  MemoryResource& pinned() override { return pinned_; }
  void ReleaseFreed() override { stream_->ReleaseFreed(); }
  std::size_t allocations() const { return memory_.allocations() + pinned_.allocations(); }
  std::size_t peak_bytes() const { return memory_.peak_bytes(); }

  void Copy(const std::byte* from, std::byte* to, std::size_t bytes) override {
    if (IsPinned(to) && !IsPinned(from)) bytes_brought_ += bytes;
    stream_->Copy(from, to, bytes);
  }
  void Pack(const RegionView& view, std::byte* to) override { stream_->Pack(view, to); }
  void Fill(std::byte* to, std::byte value, std::size_t bytes) override { stream_->Fill(to, value, bytes); }
  void Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const Walk& walk, std::int64_t first,
               std::int64_t count, std::uint64_t* fault) override {
    stream_->Scatter(from, packed, to_dtype, to, walk, first, count, fault);
  }
  void Gather(DType dtype, const std::byte* from, const Walk& walk, std::int64_t first, std::int64_t count,
              std::byte* packed) override {
    stream_->Gather(dtype, from, walk, first, count, packed);
  }
  void Zero(DType dtype, std::byte* to, const Walk& walk) override { stream_->Zero(dtype, to, walk); }
  void Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, std::uint64_t* fault) override {
    stream_->Quantize(recipe, rows, first_row, amax, outputs, fault);
  }
  void Rescale(std::span<std::byte> codes, float from, float to) override { stream_->Rescale(codes, from, to); }
  void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) override {
    stream_->RescaleNvfp4(codes, scales, from, to);
  }
  void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                  std::byte* values) override {
    stream_->Dequantize(recipe, tensors, dtype, values);
  }
  void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) override {
    stream_->NegateExponential(dtype, from, count, to);
  }
  void FindAmax(DType dtype, const std::byte* from, std::int64_t count, float* amax, std::uint64_t* fault) override {
    stream_->FindAmax(dtype, from, count, amax, fault);
  }
  void FindAxisAmax(DType dtype, const std::byte* from, const AxisSplit& split, float* amax,
                    std::uint64_t* fault) override {
    stream_->FindAxisAmax(dtype, from, split, amax, fault);
  }
  void LeafDigests(const std::byte* from, std::size_t bytes, Digest* leaves) override {
    stream_->LeafDigests(from, bytes, leaves);
  }
  void FindNonFinite(DType dtype, const std::byte* from, std::int64_t count, std::uint64_t* fault) override {
    stream_->FindNonFinite(dtype, from, count, fault);
  }
  Ticket Record() override { return stream_->Record(); }
  void Wait(Ticket ticket) override {
    if (ticket > waited_) ++waits_;
    waited_ = std::max(waited_, ticket);
    stream_->Wait(ticket);
  }

 private:
  bool IsPinned(const std::byte* address) const {
    cudaPointerAttributes attributes{};
    CheckCuda(cudaPointerGetAttributes(&attributes, address), "cudaPointerGetAttributes", device().index);
    return attributes.type == cudaMemoryTypeHost;
  }

  const std::shared_ptr<ReloadStream> stream_;  // ours alone
  CountingMemory memory_{stream_->memory()};
  CountingMemory pinned_{stream_->pinned()};
  Count& allocations_;
  Count& waits_;
  Count& bytes_brought_;
  Ticket waited_ = 0;
};

class CudaDevice final : public TestDevice {
 public:
  explicit CudaDevice(int device) : stream_(device) {}

  Device device() const override { return {Device::Kind::kCuda, stream_.device()}; }
  std::byte* Allocate(std::size_t bytes) override {
    std::byte* address = engine_.emplace_back(memory_, bytes).data();
    stream_.Synchronize();
    return address;
  }
  OpenReloadStream Opener() override {
    return [this](const Device& device) {
      auto stream = std::make_shared<CountedStream>(OpenCudaReloadStream(device), of_gone_, waits_, bytes_brought_);
      streams_.push_back(stream);
      return stream;
    };
  }
  void Carry(const RegionView& from, std::byte* to) override {
    if (from.num_bytes() == 0) return;
    const OnCudaDevice scope(stream_.device());
    CheckCuda(cudaMemcpy2DAsync(to, from.row_bytes, from.base, std::max(from.stride, from.row_bytes), from.row_bytes,
                                from.rows, cudaMemcpyDefault, stream_.handle()),
              "cudaMemcpy2DAsync", stream_.device());
    stream_.Synchronize();
  }
  std::size_t allocations() const override {
    std::size_t sum = of_gone_;
    for (const auto& stream : streams_) {
      if (const auto live = stream.lock()) sum += live->allocations();
    }
    return sum;
  }
  std::size_t peak_bytes() const override {  // of those that live, as if all had them at once
    std::size_t sum = 0;
    for (const auto& stream : streams_) {
      if (const auto live = stream.lock()) sum += live->peak_bytes();
    }
    return sum;
  }
  std::size_t waits() const override { return waits_; }
  std::size_t bytes_brought() const override { return bytes_brought_; }

 private:
  CudaStream stream_;
  CudaMemory memory_{stream_};
  std::vector<Buffer> engine_;
  std::vector<std::weak_ptr<CountedStream>> streams_;
  CountedStream::Count of_gone_ = 0;  // streams' allocations
  CountedStream::Count waits_ = 0;
  CountedStream::Count bytes_brought_ = 0;
};

}  // namespace

std::unique_ptr<TestDevice> MakeTestDevice(std::string& why) {
  const CudaProbe probe = ProbeCuda();
  why = probe.why_none;
  return probe ? std::make_unique<CudaDevice>(probe.devices - 1) : nullptr;
}

}  // namespace layercast::testing
