// Weights for the tests of recipes: every kind that has ever rounded wrong somewhere.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "src/tensor/element.h"

namespace layercast {

// A matrix of a 16 or 32 bit type, rows `row_stride` bytes apart. Value.
struct Weight {
  DType dtype = DType::kBF16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  std::vector<std::byte> bytes;

  MatrixView view() const { return {dtype, bytes.data(), rows, cols, row_stride}; }
  MatrixView Part(std::int64_t row, std::int64_t part_rows, std::int64_t col, std::int64_t part_cols) const {
    const std::int64_t size = BitsPerElement(dtype) / 8;
    return {dtype, bytes.data() + row * row_stride + col * size, part_rows, part_cols, row_stride};
  }
  void SetBits(std::int64_t row, std::int64_t col, std::uint32_t bits) {
    const auto size = static_cast<std::size_t>(BitsPerElement(dtype) / 8);
    std::memcpy(bytes.data() + row * row_stride + col * static_cast<std::int64_t>(size), &bits, size);
  }
};

// The bits of `value` in `dtype`, cut off: which way it rounds does not matter to a test's input.
inline std::uint32_t BitsOf(DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  if (dtype == DType::kF32) return bits;
  if (dtype == DType::kBF16) return bits >> 16;
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::min(std::fabs(value), 65504.0);
  const int exponent = magnitude == 0.0 ? -14 : std::max(std::ilogb(magnitude), -14);
  return sign |
         static_cast<std::uint32_t>(1024 * (exponent + 14) + static_cast<int>(std::ldexp(magnitude, 10 - exponent)));
}

inline Weight MakeWeight(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t gap,
                         const std::function<std::uint32_t(std::int64_t, std::int64_t)>& bits) {
  const std::int64_t row_bytes = cols * BitsPerElement(dtype) / 8;
  Weight weight{dtype, rows, cols, row_bytes + gap, {}};
  weight.bytes.assign(static_cast<std::size_t>(rows * weight.row_stride), std::byte{0xff});  // gaps hold NaN
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) weight.SetBits(r, c, bits(r, c));
  }
  return weight;
}

// "random": normal; "bits": any finite bits; "mixed": rows of very different size; the rest as they say.
inline const std::vector<std::string>& WeightKinds() {
  static const std::vector<std::string> kinds = {"random", "bits",   "mixed",     "constant", "zero", "minus_zero",
                                                 "tiny",   "floors", "subnormal", "huge",     "ties"};
  return kinds;
}

inline Weight MakeWeight(const std::string& kind, DType dtype, std::int64_t rows, std::int64_t cols,
                         std::int64_t gap = 0) {
  std::mt19937 random(static_cast<unsigned>(rows * 1000 + cols));
  std::normal_distribution<double> normal(0.0, 0.02);
  const std::uint32_t finite = dtype == DType::kF32 ? 0xff7fffffU : dtype == DType::kBF16 ? 0xff7fU : 0xfbffU;
  return MakeWeight(dtype, rows, cols, gap, [&](std::int64_t r, std::int64_t c) -> std::uint32_t {
    const double noise = normal(random);
    if (kind == "bits") {
      const auto any = static_cast<std::uint32_t>(random()) & (dtype == DType::kF32 ? 0xffffffffU : 0xffffU);
      return std::isfinite(DecodeElement(dtype, any)) ? any : any & finite;
    }
    if (kind == "mixed") return BitsOf(dtype, noise * std::ldexp(1.0, static_cast<int>(r % 41) - 20));
    if (kind == "constant") return BitsOf(dtype, -0.0371);
    if (kind == "zero") return 0;
    if (kind == "minus_zero") return BitsOf(dtype, c % 3 == 0 ? -0.0 : 0.0);
    if (kind == "tiny") return BitsOf(dtype, noise * 1e-35);
    if (kind == "floors") return BitsOf(dtype, noise * 0.004);
    if (kind == "subnormal")
      return static_cast<std::uint32_t>(random()) & (dtype == DType::kF32 ? 0x807fffffU : 0x807fU);
    if (kind == "huge") return BitsOf(dtype, std::clamp(noise * 50.0, -1.0, 1.0) * 3.3e38);
    if (kind == "ties")
      return BitsOf(dtype, c == 0 ? 448.0 : (r % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(c % 960) / 2.0);
    return BitsOf(dtype, noise);
  });
}

}  // namespace layercast
