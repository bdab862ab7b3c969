// What the stages do to bytes, wherever those lie: at once in host memory (host_work.h), or queued for a device
// (device_work.h). Which bytes, and when, is the stages' own affair: they are the same for both.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/plan/piece.h"
#include "engine_side/quant/recipe.h"
#include "layercast/captured_buffers.h"
#include "layercast/memory.h"
#include "src/tensor/region.h"

namespace layercast {

// A matrix of a parameter, for words about it. Value; the plan is borrowed.
struct PlacedMatrix {
  const LoadPlan& plan;
  std::uint32_t parameter = 0;
  std::int64_t matrix = 0;

  std::string ToString() const;  // "layer a.b: 'a.b.weight'", and which matrix where there are several
};

[[noreturn]] void ThrowNanExponent(const PlacedMatrix& place, std::int64_t element);
[[noreturn]] void ThrowWrongDerived(const std::string& layer, const std::string& tensor, std::int64_t element);

// One thread only. Memory that it is given is the layers' and the sink's, on the device where it works. Views show host
// memory, or chunks that a channel has brought to the device (device_chunks.h); what they show in host memory is not
// used after a call returns.
class StageWork {
 public:
  virtual ~StageWork() = default;

  // Where a layer's parameters are materialized. What is given back may still be used by what was asked for before.
  virtual MemoryResource& layer_memory() = 0;

  // A view's bytes for the host: `read` is called with the view itself at once, or with a copy by AwaitReads.
  using ReadView = std::function<void(const RegionView& view)>;
  virtual void Read(const RegionView& view, ReadView read) = 0;
  // Calls what was not called yet, in its order; what that throws goes on to the caller. One wait, however many.
  virtual void AwaitReads() = 0;
  // Copies a view's bytes, packed.
  virtual void Write(const RegionView& view, std::byte* to) = 0;
  virtual void Zero(const TensorSpec& spec, const Box& box, std::byte* memory) = 0;
  // Stage 3 (fuse_and_shard.h).
  virtual void FuseAndShard(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                            const TensorSpec& parameter, std::byte* memory) = 0;
  // Stage 4, of rows of one matrix, as Recipe::Quantize. What is wrong with a value is thrown here, or by EndLayer or
  // Finish, with the place's words before it.
  virtual void Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                        std::span<const KernelTensorView> outputs, const PlacedMatrix& place) = 0;
  // Powers of two (e8m0) that came with their codes: a NaN among them is thrown in the same way.
  virtual void CheckExponents(std::span<const std::byte> exponents, const PlacedMatrix& place) = 0;

  // Codes of a weight that has one scale, brought to a larger one (rescale.h): of FP8 per tensor, or blocks of NVFP4
  // with their scales.
  virtual void Rescale(std::span<std::byte> codes, float from, float to) = 0;
  virtual void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) = 0;

  // What a recipe made of a matrix, back to full precision (dequantize.h), row-major into `values`.
  virtual void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                          std::byte* values) = 0;
  // -exp(x) of packed f16, bf16, f32 or f64 (src/tensor/exponential.h).
  virtual void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) = 0;
  // The elements of a captured buffer, or of a parameter that is seen as one, packed.
  virtual void CopyStrided(const CapturedBuffer& from, std::span<std::byte> to) = 0;
  // A tensor that was derived of that layer: a NaN or infinity in it is thrown as Quantize throws.
  virtual void CheckDerived(const std::string& layer, const TensorSpec& spec, std::span<const std::byte> tensor) = 0;

  // Tensors for the host to read: themselves, or copies in `memory`, for which the host waits.
  virtual std::vector<std::span<const std::byte>> ReadBack(std::span<const std::span<const std::byte>> tensors,
                                                           Buffer& memory) = 0;

  // Everything was asked for that makes a layer whole.
  virtual void EndLayer() = 0;
  // Everything was asked for: when this returns it is done, and nothing was wrong.
  virtual void Finish() = 0;
  // What was asked for does not matter any more, and nothing that is wrong with it is ever thrown.
  virtual void Drop() = 0;
};

}  // namespace layercast
