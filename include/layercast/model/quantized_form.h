// How checkpoints may hold the weight of a linear layer or of an expert: FP8 codes (e4m3) and their scales, `weight ~
// code * scale`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

// Value.
struct LAYERCAST_PUBLIC QuantizedForm {
  enum class Scales : std::uint8_t { kTensor, kChannel, kBlock };
  Scales scales = Scales::kTensor;
  std::int64_t block_rows = 128, block_cols = 128;  // kBlock
  bool power_of_two = false;                        // the scales are powers of two
  std::string checkpoint_scale = "weight_scale";    // what checkpoints call the scales, within the layer

  // The recipe whose kernel tensors are such; empty: there is none.
  std::string_view recipe() const;
  // What that recipe calls the scales.
  std::string_view kernel_scale() const;
  // Shape of the scales of a weight [rows, cols]. Blocks at the ends may be partial.
  Shape ScaleShape(std::int64_t rows, std::int64_t cols) const;

  bool operator==(const QuantizedForm&) const = default;
};

}  // namespace layercast
