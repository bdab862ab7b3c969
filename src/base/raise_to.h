// Keeps the largest of the values that several threads have seen.
#pragma once

#include <atomic>

namespace layercast {

template <typename T>
void RaiseTo(std::atomic<T>& largest, T value) {
  T before = largest.load();
  while (before < value && !largest.compare_exchange_weak(before, value)) {
  }
}

}  // namespace layercast
