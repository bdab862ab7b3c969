// What only a reload does to bytes on a device, beyond what a publisher does too (src/device/device_stream.h), and on
// the same stream: it moves elements between tensors, and quantizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine_side/quant/recipe.h"
#include "src/device/device_stream.h"
#include "src/tensor/walk.h"

namespace layercast {

// Resource; one thread at a time. DeviceStream's rules for addresses hold here too. The base is virtual because
// CudaReloadStream takes the base's operations from CudaDeviceStream.
class ReloadStream : public virtual DeviceStream {
 public:
  // Writes `count` packed elements, cast, to elements first, first + 1, ... of the walk over the tensor at `to`. If
  // they are cast to another type, the first that is not finite any more is merged into `fault`, a word that
  // DecodeCudaCastFault reads; there must be fewer than 2^32 of them.
  virtual void Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const Walk& walk,
                       std::int64_t first, std::int64_t count, std::uint64_t* fault) = 0;
  // Reads elements first, first + 1, ... of the walk over the tensor at `from`, as they are, into `count` packed ones.
  virtual void Gather(DType dtype, const std::byte* from, const Walk& walk, std::int64_t first, std::int64_t count,
                      std::byte* packed) = 0;
  // Sets the walk's elements to zero.
  virtual void Zero(DType dtype, std::byte* to, const Walk& walk) = 0;

  // Does what Recipe::Quantize does with everything in device memory, including the magnitudes of rows. If the
  // magnitude of the whole weight is not given, it is computed on the device. What is wrong is merged into `fault`, as
  // by FindAmax.
  virtual void Quantize(const Recipe& recipe, const MatrixView& rows, std::int64_t first_row, const AmaxInput& amax,
                        std::span<const KernelTensorView> outputs, std::uint64_t* fault) = 0;

  // Rescale the codes of a weight that has one scale to a larger one, in place (engine_side/quant/rescale.h): FP8 per
  // tensor, and blocks of NVFP4 with their scales.
  virtual void Rescale(std::span<std::byte> codes, float from, float to) = 0;
  virtual void RescaleNvfp4(std::span<std::byte> codes, std::span<std::byte> scales, float from, float to) = 0;

  // Turns what a recipe made back to full precision, as Dequantize does on the host.
  virtual void Dequantize(const Recipe& recipe, std::span<const KernelTensorView> tensors, DType dtype,
                          std::byte* values) = 0;
  // Computes -exp(x) of packed f16, bf16, f32 or f64 (src/tensor/exponential.h).
  virtual void NegateExponential(DType dtype, const std::byte* from, std::int64_t count, float* to) = 0;
};

// Opens a new stream of a device. Throws kUnsupported, saying why, if there is no such device.
using OpenReloadStream = std::function<std::shared_ptr<ReloadStream>(const Device& device)>;
std::shared_ptr<ReloadStream> OpenCudaReloadStream(const Device& device);

}  // namespace layercast
