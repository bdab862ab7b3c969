#include "src/tensor/cast.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "src/base/check.h"
#include "src/tensor/conversions.h"

namespace layercast {
namespace {

using conversions::BF16;
using conversions::F16;
using conversions::F32;
using conversions::F64;

// Whether some number of the one type is infinite in the other.
template <typename From, typename To>
constexpr bool kMayOverflow =
    !std::is_same_v<From, F16> && !std::is_same_v<To, F64> && !(std::is_same_v<From, BF16> && std::is_same_v<To, F32>);

template <typename From, typename To>
bool CastAll(const std::byte* source, std::byte* destination, std::size_t count) {
  // Magnitudes, moved so that those of infinity and NaN alone reach into the bit of the sign: as cheap as a compiler
  // makes it for a vector of results.
  using Word = typename To::Word;
  constexpr Word kSign = Word{1} << (8 * sizeof(Word) - 1);
  Word reached = 0;
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Bits in;
    std::memcpy(&in, source + i * sizeof(in), sizeof(in));
    const typename To::Bits out = To::FromFloat(From::ToFloat(in));
    std::memcpy(destination + i * sizeof(out), &out, sizeof(out));
    if constexpr (kMayOverflow<From, To>) {
      const Word magnitude = conversions::BitCast<Word>(out) & static_cast<Word>(kSign - 1);
      reached |= static_cast<Word>(magnitude + (kSign - To::kInfinity));
    }
  }
  return (reached & kSign) == 0;
}

template <typename From>
bool CastFrom(const std::byte* source, DType to, std::byte* destination, std::size_t count) {
  switch (to) {
    case DType::kF16: return CastAll<From, F16>(source, destination, count);
    case DType::kBF16: return CastAll<From, BF16>(source, destination, count);
    case DType::kF32: return CastAll<From, F32>(source, destination, count);
    case DType::kF64: return CastAll<From, F64>(source, destination, count);
    default: LAYERCAST_CHECK(false);
  }
  return false;  // not reached
}

bool IsCastable(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 || dtype == DType::kF64;
}

}  // namespace

bool CanCast(DType from, DType to) { return IsCastable(from) && IsCastable(to); }

bool Cast(DType from, const std::byte* source, DType to, std::byte* destination, std::size_t count) {
  LAYERCAST_CHECK(CanCast(from, to));
  if (from == to) {
    std::memcpy(destination, source, count * static_cast<std::size_t>(BitsPerElement(from)) / 8);
    return true;
  }
  switch (from) {
    case DType::kF16: return CastFrom<F16>(source, to, destination, count);
    case DType::kBF16: return CastFrom<BF16>(source, to, destination, count);
    case DType::kF32: return CastFrom<F32>(source, to, destination, count);
    case DType::kF64: return CastFrom<F64>(source, to, destination, count);
    default: LAYERCAST_CHECK(false);
  }
  return false;  // not reached
}

float RoundTo(DType to, float value) {
  switch (to) {
    case DType::kF16: return F16::ToFloat(F16::FromFloat(value));
    case DType::kBF16: return BF16::ToFloat(BF16::FromFloat(value));
    default: return value;
  }
}

}  // namespace layercast
