#include "engine_side/model/decay.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "src/tensor/cast.h"

namespace layercast {
namespace {

// By way of fp64, because C libraries' exp of fp32 differ in last bits.
void NegateExp(DType dtype, std::span<const std::byte> a_log, std::span<std::byte> a) {
  std::vector<float> values(a.size() / sizeof(float));
  Cast(dtype, a_log.data(), DType::kF32, reinterpret_cast<std::byte*>(values.data()), values.size());
  for (float& value : values) value = static_cast<float>(-std::exp(static_cast<double>(value)));
  std::memcpy(a.data(), values.data(), a.size());
}

}  // namespace

DerivedTensor DecayOf(const TensorSpec& a_log) {
  return {{"A", DType::kF32, a_log.shape}, {a_log}, [dtype = a_log.dtype](auto sources, auto derived) {
            NegateExp(dtype, sources[0], derived);
          }};
}

}  // namespace layercast
