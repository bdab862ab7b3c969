// Cosines and sines of rotary embeddings on the decode step's device, for every possible position. Used by attention;
// layers with the same rotary embedding share them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine_side/engine/rotary_table.h"

namespace layercast {

// Resource; one thread only.
class RotaryTensors {
 public:
  RotaryTensors(RopeFunction make_rope, DType dtype, std::int64_t positions, const at::Device& device)
      : tables_(std::move(make_rope), dtype), positions_(positions), device_(device) {}

  // The values of RotaryTable, to the bit, on the device: fp32 [positions, 1, pairs] each. Value.
  struct Turns {
    at::Tensor cos, sin;
  };
  const Turns& For(const RotaryEmbedding& embedding);  // the result lives as long as this object

 private:
  RotaryTables tables_;
  std::int64_t positions_;
  at::Device device_;
  std::vector<std::pair<const RotaryTable*, std::unique_ptr<Turns>>> turns_;
};

// Rotates the first elements of heads, [rows, n, head_dim], by their rows' positions: the pairs (i, i + dim / 2), with
// every product and sum rounded to `type`.
at::Tensor Turned(const at::Tensor& heads, const RotaryTensors::Turns& turns, const at::Tensor& positions,
                  at::ScalarType type);

}  // namespace layercast
