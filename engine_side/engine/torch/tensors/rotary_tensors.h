// Cosines and sines of rotary embeddings on the decode step's device, for every possible position. Used by attention;
// layers with the same rotary embedding share them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "engine_side/engine/rotary_table.h"

namespace layercast {

// Resource; one thread only.
class RotaryTensors {
 public:
  RotaryTensors(std::int64_t positions, const at::Device& device) : positions_(positions), device_(device) {}

  // The values of RotaryTable, to the bit, on the device: fp32 [positions, 1, pairs] each; undefined: nothing is
  // rotated. Value.
  struct Turns {
    at::Tensor cos, sin;
  };
  Turns For(RotaryTable* table);  // null: nothing is rotated

 private:
  std::int64_t positions_;
  at::Device device_;
  std::vector<std::pair<const RotaryTable*, Turns>> turns_;
};

// Rotates the first elements of heads, [rows, n, head_dim], by their rows' positions: the pairs (i, i + dim / 2), with
// every product and sum rounded to `type`.
at::Tensor Turned(const at::Tensor& heads, const RotaryTensors::Turns& turns, const at::Tensor& positions,
                  at::ScalarType type);

}  // namespace layercast
