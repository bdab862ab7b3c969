#include "src/noise/add_noise.h"

#include <array>
#include <cstring>
#include <string>

#include "layercast/error.h"
#include "src/noise/fnv.h"
#include "src/noise/normals.h"
#include "src/tensor/conversions.h"

namespace layercast {
namespace {

template <class Type>
void AddTo(const Noise& noise, const NoisyParameter& parameter, std::span<const std::byte> from,
           std::span<std::byte> to) {
  using Bits = typename Type::Bits;
  const std::uint64_t name = Fnv1a(parameter.name);
  std::array<double, 4> normals{};
  std::uint64_t block = ~std::uint64_t{0};
  for (std::size_t i = 0; i < from.size() / sizeof(Bits); ++i) {
    const std::uint64_t channel = parameter.first_channel + i;
    if (channel / 4 != block) {
      block = channel / 4;
      normals = Normals(noise.seed ^ noise.own, name, block);
    }
    const float drawn = noise.sigma * static_cast<float>(normals[channel % 4]);
    Bits bits;
    std::memcpy(&bits, from.data() + i * sizeof bits, sizeof bits);
    bits = Type::FromFloat(Type::ToFloat(bits) + Type::ToFloat(Type::FromFloat(drawn)));
    std::memcpy(to.data() + i * sizeof bits, &bits, sizeof bits);
  }
}

}  // namespace

void AddNoise(const Noise& noise, const NoisyParameter& parameter, std::span<const std::byte> from,
              std::span<std::byte> to) {
  switch (parameter.dtype) {
    case DType::kF32: return AddTo<conversions::F32>(noise, parameter, from, to);
    case DType::kBF16: return AddTo<conversions::BF16>(noise, parameter, from, to);
    case DType::kF16: return AddTo<conversions::F16>(noise, parameter, from, to);
    default:
      throw Error(ErrorCode::kUnsupported, "noise on '" + std::string(parameter.name) +
                                               "': expected f32, bf16 or f16, got " +
                                               std::string(Name(parameter.dtype)));
  }
}

}  // namespace layercast
