#include "engine_side/quant/rescale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"
#include "src/base/check.h"
#include "src/base/rounding.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

constexpr std::size_t kNvfp4BlockBytes = kNvfp4Block / 2;
constexpr std::size_t kBand = std::size_t{1} << 16U;  // bytes of codes that a thread takes at once

// Calls body(first byte, band) for each band of the codes. All bands but the last have the same size.
template <class Body>
void ForBands(std::span<std::uint8_t> codes, WorkerPool& pool, const Body& body) {
  pool.For(CeilDivide(codes.size(), kBand), [&](std::size_t i) {
    body(i * kBand, codes.subspan(i * kBand, std::min(kBand, codes.size() - i * kBand)));
  });
}

// Rescales one block to the global scale `1 / factor`. A block whose scale is NaN is left as it is, for others to
// refuse.
void RescaleBlock(std::uint8_t* codes, std::uint8_t& scale, float from, float factor) {
  const ValueTables& tables = GetValueTables();
  const float scale_value = tables.f8_e4m3[scale];
  if (std::isnan(scale_value)) return;
  std::array<float, kNvfp4Block> values{};
  float amax = 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const unsigned code = i % 2 == 0 ? codes[i / 2] & 15U : codes[i / 2] >> 4U;
    values[i] = tables.f4[code] * (scale_value * from);
    amax = std::max(amax, std::abs(values[i]));
  }
  scale = EncodeE4M3(factor * (amax / kFp4Max));
  const float new_value = tables.f8_e4m3[scale];
  const auto encode = [&](float value) {
    return new_value == 0.0F ? std::uint8_t{0} : EncodeE2M1(value * (factor / new_value));
  };
  for (std::size_t i = 0; i < kNvfp4BlockBytes; ++i) {
    codes[i] = static_cast<std::uint8_t>(encode(values[2 * i]) | encode(values[2 * i + 1]) << 4U);
  }
}

}  // namespace

void Rescale(std::span<std::uint8_t> codes, float from, float to, WorkerPool& pool) {
  if (from == to) return;
  const float factor = 1.0F / to;
  if (!IsFinite(factor)) {
    std::ranges::fill(codes, std::uint8_t{0});
    return;
  }
  const std::array<float, 256>& value_of = GetValueTables().f8_e4m3;
  std::array<std::uint8_t, 256> code_of{};
  for (std::size_t code = 0; code < code_of.size(); ++code) {
    const float value = value_of[code];
    code_of[code] = std::isnan(value) ? static_cast<std::uint8_t>(code)
                                      : EncodeE4M3(std::clamp(value * from * factor, -kFp8Max, kFp8Max));
  }
  ForBands(codes, pool, [&](std::size_t /*first*/, std::span<std::uint8_t> band) {
    std::ranges::transform(band, band.begin(), [&](std::uint8_t code) { return code_of[code]; });
  });
}

void RescaleNvfp4(std::span<std::uint8_t> codes, std::span<std::uint8_t> scales, float from, float to,
                  WorkerPool& pool) {
  LAYERCAST_CHECK(codes.size() == scales.size() * kNvfp4BlockBytes);
  if (from == to) return;
  const float factor = 1.0F / to;
  if (!IsFinite(factor * 512.0F)) {  // as IsZeroNvfp4
    std::ranges::fill(codes, std::uint8_t{0});
    std::ranges::fill(scales, std::uint8_t{0});
    return;
  }
  ForBands(codes, pool, [&](std::size_t first, std::span<std::uint8_t> band) {
    for (std::size_t at = 0; at < band.size(); at += kNvfp4BlockBytes) {
      RescaleBlock(&band[at], scales[(first + at) / kNvfp4BlockBytes], from, factor);
    }
  });
}

}  // namespace layercast
