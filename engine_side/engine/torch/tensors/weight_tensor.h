// A captured weight as torch tensors over the buffers' own memory, and the operations that turn it into fp32. Used by
// the decode step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine_side/engine/cpu/kernels/weight_view.h"

namespace layercast {

// The operations read the bytes when they run, so they read what a reload has written, even when replayed from a graph.
// None of them waits for the device. Value; memory borrowed.
class WeightTensor {
 public:
  WeightTensor(const WeightView& view, const at::Device& device);

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }

  at::Tensor Read() const;                               // fp32 [rows, cols], value times scale
  at::Tensor ReadRows(const at::Tensor& indices) const;  // rows at `indices`, int64 [n]
  at::Tensor ReadVector() const { return Read()[0]; }    // for a weight of one row

 private:
  at::Tensor ReadValues() const;
  at::Tensor ReadScales() const;

  std::int64_t rows_, cols_;
  std::int64_t block_rows_, block_cols_;  // size of the block that shares a scale
  at::Tensor values_;                     // [rows, cols]; f4: bytes [rows, cols / 2]
  std::optional<at::Tensor> f4_values_;   // indexed by code; only for f4
  std::optional<at::Tensor> scales_;      // one for each block
  std::optional<at::Tensor> global_;      // [1]
};

// What is made of an operand that a block may lack: T(*operand, device), or nullopt.
template <class T, class Operand>
std::optional<T> IfAny(const std::optional<Operand>& operand, const at::Device& device) {
  return operand ? std::optional(T(*operand, device)) : std::nullopt;
}

}  // namespace layercast
