#include "engine_side/engine/rotary_table.h"

#include <cmath>

#include "engine_side/engine/kernels.h"

namespace layercast {

void RotaryTable::GrowTo(std::size_t end) {
  const std::size_t half = inverse_frequencies_.size();
  if (half == 0) return;
  const std::size_t begin = cos_.size() / half;
  for (std::size_t position = begin; position < end; ++position) {
    for (const float frequency : inverse_frequencies_) {
      const float angle = static_cast<float>(position) * frequency;
      cos_.push_back(std::cos(angle) * attention_factor_);
      sin_.push_back(std::sin(angle) * attention_factor_);
    }
  }
  if (end <= begin) return;
  RoundTo(dtype_, std::span(cos_).subspan(begin * half));
  RoundTo(dtype_, std::span(sin_).subspan(begin * half));
}

}  // namespace layercast
