// Rescales the codes of a weight that has one scale to a larger one, in place (engine_side/quant/rescale.h): what one
// thread does. `factor` is 1 / the larger scale.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/device_codes.cuh"
#include "src/device/kernels/dispatch_dtype.cuh"

namespace layercast::cuda {

// A code that is NaN is left as it is, for others to refuse.
LAYERCAST_HOST_DEVICE inline std::uint32_t RescaledE4M3(std::uint32_t code, float from, float factor) {
  constexpr std::uint32_t kNan = 0x7f;
  const std::uint32_t magnitude = code & 0x7f;
  if (magnitude == kNan) return code;
  const float value = E4M3Value(magnitude) * from * factor;
  return (code & 0x80) | (E4M3Code(value < kFp8Max ? value : kFp8Max) & 0x7f);
}

// FP8 per tensor: a thread does sixteen codes, and loads and stores them at once if kWide.
template <bool kWide>
struct RescaleCodes {
  static constexpr std::int64_t kCodes = 16;

  unsigned char* codes;
  std::int64_t count;
  float from, factor;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const {
    unsigned char* const own = codes + i * kCodes;
    const std::int64_t left = count - i * kCodes;
    if (kWide && left >= kCodes) return AtOnce(own);
    for (std::int64_t c = 0; c < left && c < kCodes; ++c) own[c] = static_cast<unsigned char>(Rescaled(own[c]));
  }

 private:
  LAYERCAST_HOST_DEVICE void AtOnce(unsigned char* own) const {
    std::uint32_t words[4];
    LoadWords(own, words);
    LAYERCAST_UNROLL
    for (int i = 0; i < 4; ++i) {
      words[i] = LowBytes(Rescaled(words[i] & 0xff), Rescaled(words[i] >> 8 & 0xff), Rescaled(words[i] >> 16 & 0xff),
                          Rescaled(words[i] >> 24));
    }
    StoreStreaming(words, own);
  }
  LAYERCAST_HOST_DEVICE std::uint32_t Rescaled(std::uint32_t code) const {
    return IsFinite(factor) ? RescaledE4M3(code, from, factor) : 0;
  }
};

// NVFP4: a thread does one block.
template <bool kWide>
struct RescaleNvfp4Block {
  static constexpr int kBytes = static_cast<int>(kNvfp4Block) / 2;

  unsigned char* codes;
  unsigned char* scales;
  float from, factor;

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t block) const {
    unsigned char* const own = codes + block * kBytes;
    unsigned char* const scale = scales + block;
    constexpr std::uint32_t kNan = 0x7f;
    if (!IsFinite(factor * 512.0F)) {  // as IsZeroNvfp4
      *scale = 0;
      return Store({0, 0}, own);
    }
    if ((*scale & 0x7f) == kNan) return;
    const float magnitude = E4M3Value(*scale & 0x7f) * from;
    std::uint32_t words[2];
    Load(own, words);
    float amax = 0.0F;
    LAYERCAST_UNROLL
    for (int i = 0; i < kNvfp4Block; ++i) {
      const float value = E2M1Value(words[i / 8] >> (4 * (i % 8)) & 7) * magnitude;
      if (amax < value) amax = value;
    }
    const std::uint32_t new_scale = E4M3Code(factor * (amax / kFp4Max)) & 0x7f;
    const float quotient = new_scale == 0 ? 0.0F : factor / E4M3Value(new_scale);
    const std::uint32_t sign = *scale >> 4 & 8;
    std::uint32_t rescaled[2] = {0, 0};
    LAYERCAST_UNROLL
    for (int i = 0; i < kNvfp4Block; ++i) {
      const std::uint32_t code = words[i / 8] >> (4 * (i % 8));
      const std::uint32_t magnitude_code = SaturatedE2M1Code(E2M1Value(code & 7) * magnitude * quotient) & 7;
      const std::uint32_t new_code = new_scale == 0 ? 0 : magnitude_code | ((code & 8) ^ sign);
      rescaled[i / 8] |= new_code << (4 * (i % 8));
    }
    *scale = static_cast<unsigned char>(new_scale);
    Store(rescaled, own);
  }

 private:
  LAYERCAST_HOST_DEVICE static void Load(const unsigned char* from, std::uint32_t (&words)[2]) {
    if constexpr (kWide) {
      LoadWords(from, words);
    } else {
      words[0] = words[1] = 0;
      LAYERCAST_UNROLL
      for (int i = 0; i < kBytes; ++i) words[i / 4] |= std::uint32_t{from[i]} << (8 * (i % 4));
    }
  }
  LAYERCAST_HOST_DEVICE static void Store(const std::uint32_t (&words)[2], unsigned char* to) {
    if constexpr (kWide) {
      StoreStreaming(words, to);
    } else {
      LAYERCAST_UNROLL
      for (int i = 0; i < kBytes; ++i) to[i] = static_cast<unsigned char>(words[i / 4] >> (8 * (i % 4)));
    }
  }
};

template <class Runner>
void RunRescale(const Runner& runner, std::uint8_t* codes, std::int64_t count, float from, float to) {
  if (from == to) return;
  const std::int64_t groups = (count + RescaleCodes<true>::kCodes - 1) / RescaleCodes<true>::kCodes;
  if (IsAligned(codes, RescaleCodes<true>::kCodes)) {
    runner.Run(RescaleCodes<true>{codes, count, from, 1.0F / to}, groups);
  } else {
    runner.Run(RescaleCodes<false>{codes, count, from, 1.0F / to}, groups);
  }
}

template <class Runner>
void RunRescaleNvfp4(const Runner& runner, std::uint8_t* codes, std::uint8_t* scales, std::int64_t blocks, float from,
                     float to) {
  if (from == to) return;
  if (IsAligned(codes, RescaleNvfp4Block<true>::kBytes)) {
    runner.Run(RescaleNvfp4Block<true>{codes, scales, from, 1.0F / to}, blocks);
  } else {
    runner.Run(RescaleNvfp4Block<false>{codes, scales, from, 1.0F / to}, blocks);
  }
}

}  // namespace layercast::cuda
