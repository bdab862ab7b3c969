// The stages' work on a device: uploads through pinned blocks, unless a channel has brought chunks to the device, and
// then kernels on one stream. The host waits until a block is free and, at the end of a layer, for the layer before it.
// It never waits for a single tensor.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine_side/reload/device/device_chunks.h"
#include "engine_side/reload/device/reload_stream.h"
#include "engine_side/reload/work/stage_work.h"
#include "src/base/memory/caching_memory.h"
#include "src/base/threads/worker_pool.h"
#include "src/device/download.h"
#include "src/device/kernels/cuda_fault.h"
#include "src/device/upload_ring.h"

namespace layercast {

// Resource; one thread only. It keeps the memory that it took for the next reload. What it borrows must outlive it.
class DeviceWork final : public StageWork {
 public:
  // `pool` packs what is uploaded. `block_bytes` is the size of a pinned block.
  DeviceWork(ReloadStream& stream, WorkerPool& pool, std::size_t block_bytes);
  ~DeviceWork() override;

  ReloadStream& stream() { return stream_; }
  // Where channels may put chunks directly. Views of such chunks are read from there.
  DeviceChunks& chunks() { return chunks_; }
  Download& download() { return download_; }

  // Blocks that are freed are kept for others of their size, also in the next reload, which then allocates nothing.
  MemoryResource& layer_memory() override { return layer_memory_; }
  void Read(const RegionView& view, ReadView read) override;
  void AwaitReads() override;
  void Write(const RegionView& view, std::byte* to) override;
  void Zero(const TensorSpec& spec, const Box& box, std::byte* memory) override;
  void FuseAndShard(const SourcePiece& piece, const RegionView& view, std::byte* memory) override;
  void Quantize(const Recipe& recipe, const MatrixView& matrix, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, const PlacedMatrix& place) override;
  void QuantizeArrived(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                       std::span<const KernelTensorView> outputs, const PlacedMatrix& place) override;
  std::size_t MostArrivedBytes() const override { return uploads_.block_bytes(); }
  void CopyArrived(const SourcePiece& piece, const RegionView& view, std::byte* memory) override {
    FuseAndShard(piece, view, memory);
  }
  void CheckStored(const TensorSpec& spec, std::span<const std::byte> tensor, const PlacedMatrix& place) override;
  void CheckExponents(std::span<const std::byte> exponents, const PlacedMatrix& place) override;
  void Rescale(std::span<std::byte> codes, float from, float to) override { stream_.Rescale(codes, from, to); }
  void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) override {
    stream_.RescaleNvfp4(codes, scales, from, to);
  }
  void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                  std::byte* values) override {
    stream_.Dequantize(recipe, tensors, dtype, values);
  }
  void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) override {
    if (count != 0) stream_.NegateExponential(dtype, from, count, to);
  }
  void CopyStrided(const CapturedBuffer& from, std::span<std::byte> to) override;
  void CheckDerived(const std::string& layer, const TensorSpec& spec, std::span<const std::byte> tensor) override;
  std::vector<std::span<const std::byte>> ReadBack(std::span<const std::span<const std::byte>> tensors,
                                                   Buffer& memory) override;
  void EndLayer(std::function<void()> close) override;
  void Finish() override;
  void Drop() override;
  // Gives back what is kept for the next reload, after Drop.
  void ReleaseMemory();

 private:
  // Throws an error that says in words what a kernel found wrong, and left in the word.
  using Complaint = std::function<void(CudaFaultWord word)>;
  // What is to be checked of one layer: a word for each call that checks values, where its kernel leaves what is wrong.
  // The words are reset before the first call and fetched after the last.
  struct LayerChecks {
    Buffer words;                       // on the device
    Buffer fetched;                     // pinned
    std::vector<Complaint> complaints;  // by word
    std::function<void()> close;        // to be called once all words have come, and none says that anything is wrong
    DeviceStream::Ticket arrived = 0;
  };

  // Bytes that the host is to read, on their way there.
  struct Awaited {
    Buffer pinned;
    RegionView copy;
    ReadView read;
  };

  bool IsChunk(const RegionView& view) const;
  const std::byte* ForCopying(const RegionView& view, std::size_t first, std::size_t bytes);
  const std::byte* ForKernels(const RegionView& view, std::size_t first, std::size_t bytes, std::size_t alignment);
  void CopyWhole(const Piece& piece, const RegionView& view, std::byte* memory);
  void Pack(const RegionView& view, std::size_t first, std::size_t bytes, std::byte* to);
  std::uint64_t* WordFor(Complaint complaint);
  std::uint64_t* WordForCast(const SourcePiece& piece, std::int64_t first);
  std::uint64_t* WordForWeight(const PlacedMatrix& place, std::int64_t cols);
  AmaxInput OnDevice(const AmaxInput& amax, Buffer& rows, const PlacedMatrix& place);
  void CheckAndClose(LayerChecks& checks);
  void WaitQuietly() noexcept;

  ReloadStream& stream_;
  WorkerPool& pool_;
  CachingMemory layer_memory_;
  CachingMemory pinned_memory_;
  DeviceChunks chunks_;
  UploadRing uploads_;
  Download download_;
  std::vector<Awaited> reads_;
  DeviceStream::Ticket last_read_ = 0;  // reached when the last of reads_ is there
  std::array<LayerChecks, 2> checks_;   // of this layer and of the one before
  std::size_t current_ = 0;
};

}  // namespace layercast
