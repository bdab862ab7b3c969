// What a reload alone does to bytes on a device, on the stream of what both sides do there
// (src/device/device_stream.h): it moves elements between tensors, and quantizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine_side/device/element_walk.h"
#include "engine_side/quant/recipe.h"
#include "src/device/device_stream.h"

namespace layercast {

// Resource; one thread at a time, as DeviceStream, whose rules for addresses hold here too. The base is virtual because
// CudaReloadStream takes the base's operations from CudaDeviceStream.
class ReloadStream : public virtual DeviceStream {
 public:
  // `count` packed elements to elements first, first + 1, ... of the walk over the tensor at `to`, cast.
  virtual void Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const ElementWalk& walk,
                       std::int64_t first, std::int64_t count) = 0;
  // The other way round, as they are.
  virtual void Gather(DType dtype, const std::byte* from, const ElementWalk& walk, std::int64_t first,
                      std::int64_t count, std::byte* packed) = 0;
  // Elements of zero.
  virtual void Zero(DType dtype, std::byte* to, const ElementWalk& walk) = 0;

  // As Recipe::Quantize, with everything in device memory, the magnitudes of rows too (those of the whole weight are
  // looked for on the device where none are given). What is wrong is merged into `fault`, as FindAmax does it.
  virtual void Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                        std::span<const KernelTensorView> outputs, std::uint64_t* fault) = 0;

  // Codes of a weight that has one scale, brought to a larger one where they lie (engine_side/quant/rescale.h): of FP8
  // per tensor, or blocks of NVFP4 with their scales.
  virtual void Rescale(std::span<std::byte> codes, float from, float to) = 0;
  virtual void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) = 0;

  // What a recipe made, back to full precision, as Dequantize does on the host.
  virtual void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                          std::byte* values) = 0;
  // -exp(x) of packed f16, bf16, f32 or f64 (src/tensor/exponential.h).
  virtual void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) = 0;
};

// A new stream of a device. Throws kUnsupported, saying why, where there is no such device.
using OpenReloadStream = std::function<std::shared_ptr<ReloadStream>(const Device& device)>;
std::shared_ptr<ReloadStream> OpenCudaReloadStream(const Device& device);

}  // namespace layercast
