// Division and multiples of whole numbers, rounded up.
#pragma once

namespace layercast {

// How many blocks of `size` elements are needed to hold `count`. count >= 0, size > 0.
template <class T>
constexpr T CeilDivide(T count, T size) {
  return count / size + (count % size == 0 ? 0 : 1);  // no sum that could overflow
}

// The smallest multiple of `step` that is at least `value`. value >= 0, step > 0.
template <class T>
constexpr T RoundUp(T value, T step) {
  return CeilDivide(value, step) * step;
}

}  // namespace layercast
