// Cosines and sines of rotary embeddings on the decode step's device, for every position there can be. Used by
// attention; layers that turn alike share them.
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

  // fp32 [positions, 1, pairs] each, on the device: those of RotaryTable, to the bit. Value.
  struct Turns {
    at::Tensor cos, sin;
  };
  const Turns& For(const RotaryEmbedding& embedding);  // lives as long as this

 private:
  RotaryTables tables_;
  std::int64_t positions_;
  at::Device device_;
  std::vector<std::pair<const RotaryTable*, std::unique_ptr<Turns>>> turns_;
};

// Of heads, [rows, n, head_dim], the first elements turned by their rows' positions: the pairs (i, i + dim / 2), each
// product and each sum rounded to `type`.
at::Tensor Turned(const at::Tensor& heads, const RotaryTensors::Turns& turns, const at::Tensor& positions,
                  at::ScalarType type);

}  // namespace layercast
