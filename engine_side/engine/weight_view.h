// A weight of any kernel format, read as fp32 where the engine captured it. Pure functions; thread-safe. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layercast/dtype.h"

namespace layercast {

// A weight [rows, cols]: element (r, c) is value * scale(r, c). A vector is a weight of one row. Value; memory
// borrowed.
struct WeightView {
  enum class Scale : std::uint8_t { kNone, kTensor, kRow, kBlock };
  static constexpr std::size_t kBlockSize = 128;

  const std::byte* values = nullptr;
  DType dtype = DType::kF32;  // f32, bf16, f16 or f8_e4m3
  std::size_t rows = 0;
  std::size_t cols = 0;
  Scale scale = Scale::kNone;
  const std::byte* scales = nullptr;  // fp32: [1], [rows, 1] or [ceil(rows/128), ceil(cols/128)]
};

// values[0, count) of the weight's row, as fp32.
void ReadRow(const WeightView& weight, std::size_t row, float* values);
// The same, with zeros behind them up to whole vectors (Activations::Padded).
void ReadPaddedRow(const WeightView& weight, std::size_t row, float* values);
// The only row of a vector.
std::vector<float> ReadVector(const WeightView& weight);

}  // namespace layercast
