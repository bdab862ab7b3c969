// Cosines and sines of the rotary embedding, by position, computed as far as sequences have grown. Used by the decoder.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "layercast/dtype.h"

namespace layercast {

// Resource; one thread only.
class RotaryTable {
 public:
  RotaryTable(std::vector<float> inverse_frequencies, float attention_factor, DType dtype)
      : inverse_frequencies_(std::move(inverse_frequencies)), attention_factor_(attention_factor), dtype_(dtype) {}

  // Makes positions [0, end) available.
  void GrowTo(std::size_t end);
  std::span<const float> Cos(std::size_t position) const { return Row(cos_, position); }
  std::span<const float> Sin(std::size_t position) const { return Row(sin_, position); }

 private:
  std::span<const float> Row(const std::vector<float>& values, std::size_t position) const {
    return std::span(values).subspan(position * inverse_frequencies_.size(), inverse_frequencies_.size());
  }

  std::vector<float> inverse_frequencies_;
  float attention_factor_;
  DType dtype_;  // both are rounded to it
  std::vector<float> cos_, sin_;
};

}  // namespace layercast
