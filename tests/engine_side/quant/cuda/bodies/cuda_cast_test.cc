// The cast that kernels take from a device that has one (fp8_unit.cuh), as CUDA's header has it for the host: the same
// codes that are made of integers elsewhere, and that the reference makes.
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/cuda/bodies/fp8_unit.cuh"

namespace layercast {
namespace {

// Above, the cast saturates where E4M3Code does not. No kernel has a magnitude above 448.00003.
constexpr float kBelow = 464.0F;

std::uint32_t CastByCuda(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}

void ExpectTheReferencesCodes(float magnitude) {
  const std::uint32_t code = EncodeE4M3(magnitude);
  ASSERT_EQ(CastByCuda(magnitude, -magnitude), code | (code | 0x80) << 8) << magnitude;
  ASSERT_EQ(cuda::E4M3Code(magnitude) & 0x7f, code) << magnitude;
}

TEST(CudaCast, EqualsTheReferenceAllOverItsRange) {
  const auto end = std::bit_cast<std::uint32_t>(kBelow);
  for (std::uint32_t bits = 0; bits < end; bits += 181) ExpectTheReferencesCodes(std::bit_cast<float>(bits));
}

TEST(CudaCast, EqualsTheReferenceAroundEveryCodeAndHalfwayToTheNext) {
  for (std::uint32_t code = 0; code < 0x7e; ++code) {
    const float value = cuda::E4M3Value(code);
    for (const float middle : {value, (value + cuda::E4M3Value(code + 1)) / 2.0F}) {
      const auto bits = std::bit_cast<std::uint32_t>(middle);
      for (std::uint32_t near = bits < 3 ? 0 : bits - 3; near <= bits + 3; ++near) {
        ExpectTheReferencesCodes(std::bit_cast<float>(near));
      }
    }
  }
}

// Every number of a type of 16 bits, and as many of fp32, eight at a time.
template <class Type, class Quotient>
void ExpectTheCodesOfIntegers(const Quotient& quotient) {
  for (std::uint32_t first = 0; first <= 0xffff; first += cuda::kUnit) {
    cuda::Unit<Type> unit{};
    for (int i = 0; i < cuda::kUnit; ++i) {
      const std::uint32_t bits = first + static_cast<std::uint32_t>(i);
      unit.words[i * Type::kBytes / 4] |= Type::kBytes == 4 ? bits << 16 | bits : bits << (16 * (i % 2));
    }
    if (cuda::LargestOf(unit) >= Type::kInfinity) continue;
    for (int half = 0; half < 2; ++half) {
      float quotients[4];
      bool small = true;
      for (int i = 0; i < 4; ++i) {
        quotients[i] = quotient(cuda::ValueOf(unit, 4 * half + i));
        small = small && std::abs(quotients[i]) < kBelow;
      }
      if (!small) continue;
      const std::uint32_t codes = CastByCuda(quotients[0], quotients[1]) | CastByCuda(quotients[2], quotients[3]) << 16;
      ASSERT_EQ(codes, cuda::EncodeHalfE4M3(unit, half, quotient)) << std::hex << first << ", half " << half;
    }
  }
}

TEST(CudaCast, OfQuotientsWithSignsHasTheCodesAndSignsOfIntegers) {
  for (const float scale : {1.0F / 448.0F, 0.3F, 1.0F, 7.3F, 1e30F}) {
    SCOPED_TRACE(scale);
    ExpectTheCodesOfIntegers<cuda::BF16>(cuda::ByReciprocal{1.0F / scale});
    ExpectTheCodesOfIntegers<cuda::BF16>(cuda::ByDivision{scale, 1.0F / scale});
    ExpectTheCodesOfIntegers<cuda::F16>(cuda::ByReciprocal{1.0F / scale});
    ExpectTheCodesOfIntegers<cuda::F16>(cuda::ByDivision{scale, 1.0F / scale});
    ExpectTheCodesOfIntegers<cuda::F32>(cuda::ByReciprocal{1.0F / scale});
    ExpectTheCodesOfIntegers<cuda::F32>(cuda::ByDivision{scale, 1.0F / scale});
  }
}

}  // namespace
}  // namespace layercast
