// The stages' work in host memory. It is done when a call returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "engine_side/reload/work/stage_work.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// Resource; one thread only. What it borrows must outlive it.
class HostWork final : public StageWork {
 public:
  HostWork(MemoryResource& layer_memory, WorkerPool& pool) : layer_memory_(layer_memory), pool_(pool) {}

  MemoryResource& layer_memory() override { return layer_memory_; }
  void Read(const RegionView& view, ReadView read) override { read(view); }
  void AwaitReads() override {}
  void Write(const RegionView& view, std::byte* to) override { Pack(view, to); }
  void Zero(const TensorSpec& spec, const Box& box, std::byte* memory) override;
  void FuseAndShard(const SourcePiece& piece, const RegionView& view, std::byte* memory) override;
  void Quantize(const Recipe& recipe, const MatrixView& matrix, const AmaxInput& amax,
                std::span<const KernelTensorView> outputs, const PlacedMatrix& place) override {
    QuantizeArrived(recipe, matrix, 0, amax, outputs, place);
  }
  void QuantizeArrived(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                       std::span<const KernelTensorView> outputs, const PlacedMatrix& place) override;
  std::size_t MostArrivedBytes() const override { return std::numeric_limits<std::size_t>::max(); }
  void CopyArrived(const SourcePiece& piece, const RegionView& view, std::byte* memory) override;
  void CheckStored(const TensorSpec& /*spec*/, std::span<const std::byte> /*tensor*/,
                   const PlacedMatrix& /*place*/) override {}
  void CheckExponents(std::span<const std::byte> exponents, const PlacedMatrix& place) override;
  void Rescale(std::span<std::byte> codes, float from, float to) override;
  void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) override;
  void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                  std::byte* values) override;
  void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) override;
  void CopyStrided(const CapturedBuffer& from, std::span<std::byte> to) override;
  void CheckDerived(const std::string& layer, const TensorSpec& spec, std::span<const std::byte> tensor) override;
  std::vector<std::span<const std::byte>> ReadBack(std::span<const std::span<const std::byte>> tensors,
                                                   Buffer& memory) override;
  void EndLayer(std::function<void()> close) override { close(); }
  void Finish() override {}
  void Drop() override {}

 private:
  enum class Values : std::uint8_t { kAny, kFinite };
  void Place(const SourcePiece& piece, const RegionView& view, std::byte* memory, Values allowed);

  MemoryResource& layer_memory_;
  WorkerPool& pool_;
};

}  // namespace layercast
