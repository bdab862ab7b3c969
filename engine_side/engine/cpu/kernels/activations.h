// Rows of activations, which the blocks of a forward pass hand to each other. Torch-free.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace layercast {

// A matrix of fp32 whose rows are each padded with zeros to whole vectors. Resource; one thread only.
class Activations {
 public:
  static constexpr std::size_t kPad = 16;  // floats

  Activations() = default;
  Activations(std::size_t rows, std::size_t cols) { Reset(rows, cols); }

  // `count` floats, rounded up to whole vectors.
  static constexpr std::size_t Padded(std::size_t count) { return (count + kPad - 1) / kPad * kPad; }

  void Reset(std::size_t rows, std::size_t cols) {  // sets all values to zero
    rows_ = rows;
    cols_ = cols;
    stride_ = Padded(cols);
    values_.assign(rows_ * stride_, 0.0F);
  }

  std::span<float> operator[](std::size_t index) { return {row(index), cols_}; }
  std::span<const float> operator[](std::size_t index) const { return {row(index), cols_}; }
  float* row(std::size_t index) { return values_.data() + index * stride_; }
  const float* row(std::size_t index) const { return values_.data() + index * stride_; }
  std::span<float> values() { return values_; }  // all rows, including their padding
  std::span<const float> values() const { return values_; }
  std::size_t rows() const { return rows_; }
  std::size_t cols() const { return cols_; }
  std::size_t stride() const { return stride_; }

 private:
  std::vector<float> values_;
  std::size_t rows_ = 0, cols_ = 0, stride_ = 0;
};

}  // namespace layercast
