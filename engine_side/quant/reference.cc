#include "engine_side/quant/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"
#include "src/base/check.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
Bytes AsBytes(const std::vector<T>& elements) {
  const auto bytes = std::as_bytes(std::span(elements));
  return {bytes.begin(), bytes.end()};
}

float Value(const MatrixView& weight, std::int64_t row, std::int64_t col) {
  return static_cast<float>(ElementValue(weight.dtype, weight.row(row), col));
}

struct Rectangle {
  std::int64_t row = 0, rows = 0, col = 0, cols = 0;
};

Rectangle Whole(const MatrixView& weight) { return {0, weight.rows, 0, weight.cols}; }

float Amax(const MatrixView& weight, const Rectangle& part) {
  float amax = 0.0F;
  for (std::int64_t r = part.row; r < part.row + part.rows; ++r) {
    for (std::int64_t c = part.col; c < part.col + part.cols; ++c)
      amax = std::max(amax, std::fabs(Value(weight, r, c)));
  }
  return amax;
}

// The codes of all elements, row-major, whatever scales they have.
struct Codes {
  const MatrixView& weight;
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(static_cast<std::size_t>(weight.rows * weight.cols));

  // Sets the codes of a rectangle's elements to code(w).
  template <class Code>
  void Fill(const Rectangle& part, const Code& code) {
    for (std::int64_t r = part.row; r < part.row + part.rows; ++r) {
      for (std::int64_t c = part.col; c < part.col + part.cols; ++c) {
        codes[static_cast<std::size_t>(r * weight.cols + c)] = code(Value(weight, r, c));
      }
    }
  }
};

// cvt(clamp(quotient)).
std::uint8_t Fp8(float quotient) { return EncodeE4M3(std::clamp(quotient, -kFp8Max, kFp8Max)); }

// Calls body(block) for all blocks of rows x cols, row-major; the last ones may be partial.
template <class Body>
void ForBlocks(const MatrixView& weight, std::int64_t rows, std::int64_t cols, const Body& body) {
  for (std::int64_t r = 0; r < weight.rows; r += rows) {
    for (std::int64_t c = 0; c < weight.cols; c += cols) {
      body(Rectangle{r, std::min(rows, weight.rows - r), c, std::min(cols, weight.cols - c)});
    }
  }
}

std::vector<Bytes> SlowFp8PerTensor(const MatrixView& weight, const AmaxInput& input) {
  Codes values{weight};
  const float amax = input.tensor >= 0.0F ? input.tensor : Amax(weight, Whole(weight));
  if (IsZeroTensor(amax)) return {AsBytes(values.codes), AsBytes(std::vector<float>{0.0F})};
  const float scale = TensorScale(amax);
  const float reciprocal = 1.0F / scale;
  values.Fill(Whole(weight), [=](float w) { return Fp8(w * reciprocal); });
  return {AsBytes(values.codes), AsBytes(std::vector<float>{scale})};
}

// `code` makes the code of an element from its row's scale, `scale_of` the scale from the row's largest magnitude.
template <class ScaleOf, class Code>
std::vector<Bytes> ByRow(const MatrixView& weight, const AmaxInput& input, const ScaleOf& scale_of, const Code& code) {
  Codes values{weight};
  std::vector<float> scales;
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    const Rectangle row{r, 1, 0, weight.cols};
    const float amax = input.rows.empty() ? Amax(weight, row) : input.rows[static_cast<std::size_t>(r)];
    const float scale = scale_of(amax);
    values.Fill(row, [&](float w) { return code(w, scale); });
    scales.push_back(scale);
  }
  return {AsBytes(values.codes), AsBytes(scales)};
}

std::vector<Bytes> SlowFp8PerBlock(const MatrixView& weight, bool power_of_two) {
  Codes values{weight};
  std::vector<float> scales;
  ForBlocks(weight, kFp8Block, kFp8Block, [&](const Rectangle& block) {
    const float scale = BlockScale(Amax(weight, block), power_of_two);
    const float reciprocal = 1.0F / scale;
    values.Fill(block, [=](float w) { return Fp8(w * reciprocal); });
    scales.push_back(scale);
  });
  return {AsBytes(values.codes), AsBytes(scales)};
}

// Packs two codes into a byte, the even column's in its low half.
std::vector<std::uint8_t> Packed(const std::vector<std::uint8_t>& codes) {
  std::vector<std::uint8_t> packed;
  for (std::size_t i = 0; i < codes.size(); i += 2) {
    packed.push_back(static_cast<std::uint8_t>(codes[i] | codes[i + 1] << 4));
  }
  return packed;
}

// The exponent of the smallest power of two s for which amax / s <= max, found by trying one after the other.
int MxScale(float amax, float max) {
  int exponent = -127;
  while (static_cast<double>(amax) > std::ldexp(static_cast<double>(max), exponent)) ++exponent;
  return exponent;
}

std::vector<Bytes> SlowMxfp8(const MatrixView& weight) {
  Codes values{weight};
  std::vector<std::uint8_t> scales;
  ForBlocks(weight, 1, kMxBlock, [&](const Rectangle& block) {
    const int exponent = MxScale(Amax(weight, block), kFp8Max);
    values.Fill(block, [=](float w) { return Fp8(std::ldexp(w, -exponent)); });
    scales.push_back(static_cast<std::uint8_t>(exponent + 127));
  });
  return {AsBytes(values.codes), AsBytes(scales)};
}

std::vector<Bytes> SlowMxfp4(const MatrixView& weight) {
  Codes values{weight};
  std::vector<std::uint8_t> scales;
  ForBlocks(weight, 1, kMxBlock, [&](const Rectangle& block) {
    const int exponent = MxScale(Amax(weight, block), kFp4Max);
    values.Fill(block, [=](float w) { return EncodeE2M1(std::ldexp(w, -exponent)); });
    scales.push_back(static_cast<std::uint8_t>(exponent + 127));
  });
  return {AsBytes(Packed(values.codes)), AsBytes(scales)};
}

std::vector<Bytes> SlowNvfp4(const MatrixView& weight, const AmaxInput& input) {
  Codes values{weight};
  std::vector<std::uint8_t> scales;
  const float amax = input.tensor >= 0.0F ? input.tensor : Amax(weight, Whole(weight));
  const bool zero = IsZeroNvfp4(amax);
  const float g = zero ? 0.0F : kFp8Max * kFp4Max / amax;
  ForBlocks(weight, 1, kNvfp4Block, [&](const Rectangle& block) {
    const std::uint8_t sf = zero ? 0 : Fp8(g * (Amax(weight, block) / kFp4Max));
    scales.push_back(sf);
    if (sf == 0) return;
    const float factor = g / static_cast<float>(DecodeElement(DType::kF8E4M3, sf));
    values.Fill(block, [=](float w) { return EncodeE2M1(w * factor); });
  });
  return {AsBytes(Packed(values.codes)), AsBytes(scales), AsBytes(std::vector<float>{zero ? 0.0F : 1.0F / g})};
}

}  // namespace

std::vector<Bytes> QuantizeSlowly(std::string_view name, const RecipeOptions& options, const MatrixView& weight,
                                  const AmaxInput& amax) {
  if (name == "fp8_per_tensor") return SlowFp8PerTensor(weight, amax);
  if (name == "fp8_per_channel") {
    return ByRow(weight, amax, ChannelScale, [](float w, float scale) { return Fp8(w / scale); });
  }
  if (name == "fp8_per_block") return SlowFp8PerBlock(weight, options.power_of_two_scales);
  if (name == "mxfp8") return SlowMxfp8(weight);
  if (name == "mxfp4") return SlowMxfp4(weight);
  if (name == "nvfp4") return SlowNvfp4(weight, amax);
  LAYERCAST_CHECK(name == "int8_per_channel");
  return ByRow(weight, amax, Int8Scale, EncodeInt8);
}

}  // namespace layercast
