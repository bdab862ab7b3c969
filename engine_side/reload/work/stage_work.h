// What the stages do to bytes, wherever these lie: at once in host memory (host_work.h), or queued for a device
// (device_work.h). Which bytes are worked on, and when, is decided by the stages, which are the same for both.
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

// A piece on its way into a parameter. Value; borrows all but the piece, for as long as an error may yet be thrown that
// names where in the checkpoint it comes from.
struct SourcePiece {
  const LoadPlan& plan;
  const Manifest& manifest;
  const Placement& placement;
  const TensorSpec& parameter;
  Piece piece;
  DType dtype;  // of the tensor; the parameter's may be another
};

// Names a matrix of a parameter, for errors. Value; borrows plan and manifest.
struct PlacedMatrix {
  const LoadPlan& plan;
  const Manifest& manifest;
  std::uint32_t parameter = 0;
  std::int64_t matrix = 0;

  std::string ToString() const;  // "layer a.b: 'a.b.weight'", and which matrix if there are several
};

[[noreturn]] void ThrowNanExponent(const PlacedMatrix& place, std::int64_t element);
[[noreturn]] void ThrowWrongDerived(const std::string& layer, const std::string& tensor, std::int64_t element);

// Resource; one thread only. The memory that it is given belongs to layers and the sink, and is on the device on which
// it works. Views show host memory, or chunks that a channel has brought to the device (device_chunks.h). What a view
// shows in host memory is not used after a call returns.
class StageWork {
 public:
  virtual ~StageWork() = default;

  // The memory in which layers' parameters are materialized. What was freed may still be used by work that was queued
  // before.
  virtual MemoryResource& layer_memory() = 0;

  // Lets the host read a view's bytes: `read` is called at once with the view itself, or by AwaitReads with a copy.
  using ReadView = std::function<void(const RegionView& view)>;
  virtual void Read(const RegionView& view, ReadView read) = 0;
  // Makes the calls that Read put off, in their order, after a single wait. What they throw is passed on.
  virtual void AwaitReads() = 0;
  // Copies a view's bytes to `to`, packed.
  virtual void Write(const RegionView& view, std::byte* to) = 0;
  virtual void Zero(const TensorSpec& spec, const Box& box, std::byte* memory) = 0;
  // Stage 3 (fuse_and_shard.h). If a cast makes a value infinite, or the value is not finite, this call, or EndLayer or
  // Finish, throws what ThrowWrongElement does (wrong_values.h).
  virtual void FuseAndShard(const SourcePiece& piece, const RegionView& view, std::byte* memory) = 0;
  // Stage 4, for a matrix that was materialized: see Recipe::Quantize. If a value is wrong, this call, or EndLayer or
  // Finish, throws an error that names the tensor that it comes from, or the matrix.
  virtual void Quantize(const Recipe& recipe, const MatrixView& matrix, const AmaxInput& amax,
                        std::span<const KernelTensorView> outputs, const PlacedMatrix& place) = 0;
  // The same for rows of a view, which are not materialized first. If they do not lie where the work is done, they are
  // brought there, a multiple of the recipe's granularity at a time, for which MostArrivedBytes has room.
  virtual void QuantizeArrived(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row,
                               const AmaxInput& amax, std::span<const KernelTensorView> outputs,
                               const PlacedMatrix& place) = 0;
  virtual std::size_t MostArrivedBytes() const = 0;
  // Stage 3 for what goes to the sink unquantized. It must be finite: this call throws as FuseAndShard does, or, where
  // it cannot look at what arrives, CheckStored throws as Quantize does, when the parameter is whole.
  virtual void CopyArrived(const SourcePiece& piece, const RegionView& view, std::byte* memory) = 0;
  virtual void CheckStored(const TensorSpec& spec, std::span<const std::byte> tensor, const PlacedMatrix& place) = 0;
  // Checks exponents (e8m0) that came with their codes. A NaN among them is thrown as Quantize throws.
  virtual void CheckExponents(std::span<const std::byte> exponents, const PlacedMatrix& place) = 0;

  // Rescales the codes of a weight that has one scale to a larger one (rescale.h): FP8 per tensor, or blocks of NVFP4
  // with their scales.
  virtual void Rescale(std::span<std::byte> codes, float from, float to) = 0;
  virtual void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) = 0;

  // Dequantizes what a recipe made of a matrix (dequantize.h), row-major into `values`.
  virtual void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                          std::byte* values) = 0;
  // Computes -exp(x) of packed f16, bf16, f32 or f64 (src/tensor/exponential.h).
  virtual void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) = 0;
  // Copies the elements of a captured buffer, or of a parameter described as one, to `to`, packed.
  virtual void CopyStrided(const CapturedBuffer& from, std::span<std::byte> to) = 0;
  // Checks a tensor that derives from parameters of `layer`. A NaN or infinity in it is thrown as Quantize throws.
  virtual void CheckDerived(const std::string& layer, const TensorSpec& spec, std::span<const std::byte> tensor) = 0;

  // Gives the host tensors to read: the tensors themselves, or copies in `memory`, for which the host waits.
  virtual std::vector<std::span<const std::byte>> ReadBack(std::span<const std::span<const std::byte>> tensors,
                                                           Buffer& memory) = 0;

  // To be called when all work for a layer was asked for. `close` is called when it is known that nothing was wrong
  // with that work: at once, or by a later call of EndLayer or Finish.
  virtual void EndLayer(std::function<void()> close) = 0;
  // To be called when all work for a version was asked for. When it returns, the work is done, and nothing was wrong.
  virtual void Finish() = 0;
  // Gives up what was asked for. Nothing that is wrong with it is thrown any more.
  virtual void Drop() = 0;
};

}  // namespace layercast
