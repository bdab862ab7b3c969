#include "src/tensor/cast.h"

#include <cstdint>
#include <cstring>

#include "src/base/check.h"
#include "src/tensor/conversions.h"

namespace layercast {
namespace {

using conversions::BF16;
using conversions::F16;
using conversions::F32;
using conversions::F64;

template <typename From, typename To>
void CastAll(const std::byte* source, std::byte* destination, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Bits in;
    std::memcpy(&in, source + i * sizeof(in), sizeof(in));
    const typename To::Bits out = To::FromFloat(From::ToFloat(in));
    std::memcpy(destination + i * sizeof(out), &out, sizeof(out));
  }
}

template <typename From>
void CastFrom(const std::byte* source, DType to, std::byte* destination, std::size_t count) {
  switch (to) {
    case DType::kF16: return CastAll<From, F16>(source, destination, count);
    case DType::kBF16: return CastAll<From, BF16>(source, destination, count);
    case DType::kF32: return CastAll<From, F32>(source, destination, count);
    case DType::kF64: return CastAll<From, F64>(source, destination, count);
    default: LAYERCAST_CHECK(false);
  }
}

bool IsCastable(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

}  // namespace

bool CanCast(DType from, DType to) { return IsCastable(from) && IsCastable(to); }

void Cast(DType from, const std::byte* source, DType to, std::byte* destination, std::size_t count) {
  LAYERCAST_CHECK(CanCast(from, to));
  if (from == to) {
    std::memcpy(destination, source, count * static_cast<std::size_t>(BitsPerElement(from)) / 8);
    return;
  }
  switch (from) {
    case DType::kF16: return CastFrom<F16>(source, to, destination, count);
    case DType::kBF16: return CastFrom<BF16>(source, to, destination, count);
    case DType::kF32: return CastFrom<F32>(source, to, destination, count);
    case DType::kF64: return CastFrom<F64>(source, to, destination, count);
    default: LAYERCAST_CHECK(false);
  }
}

float RoundTo(DType to, float value) {
  switch (to) {
    case DType::kF16: return F16::ToFloat(F16::FromFloat(value));
    case DType::kBF16: return BF16::ToFloat(BF16::FromFloat(value));
    default: return value;
  }
}

}  // namespace layercast
