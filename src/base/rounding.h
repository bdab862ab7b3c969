// Whole numbers rounded up.
#pragma once

namespace layercast {

// How many of `size` hold `count` elements. count >= 0, size > 0.
template <class T>
constexpr T CeilDivide(T count, T size) {
  return count / size + (count % size == 0 ? 0 : 1);  // no sum that could overflow
}

// The first multiple of `step` that is not under `value`. value >= 0, step > 0.
template <class T>
constexpr T RoundUp(T value, T step) {
  return CeilDivide(value, step) * step;
}

}  // namespace layercast
