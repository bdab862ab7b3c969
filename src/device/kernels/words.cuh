// The few operations for which a device has an instruction and a host has not. This is the only file of the CUDA
// kernels that knows which of the two runs it. All others are the same code on both, which is how tests run kernels
// without a device.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#include <cuda_fp8.h>
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/base/check.h"
#include "src/base/digest/host_device.h"

namespace layercast::cuda {

// A device refuses wide accesses that are not aligned. A host would not, so it checks.
inline void CheckAligned(const void* address, std::size_t bytes) {
  LAYERCAST_CHECK(reinterpret_cast<std::uintptr_t>(address) % bytes == 0);
}

// Whether bytes are read again by the same kernel. If so, they should still be in a cache then; otherwise they are the
// first to leave it.
enum class Reads { kOnce, kAgain };

// Loads 16 aligned bytes.
template <Reads kReads = Reads::kOnce>
LAYERCAST_HOST_DEVICE inline void LoadWords(const unsigned char* from, std::uint32_t (&words)[4]) {
#ifdef __CUDA_ARCH__
  const auto* const vector = reinterpret_cast<const uint4*>(from);
  const uint4 value = kReads == Reads::kOnce ? __ldcs(vector) : *vector;
  words[0] = value.x;
  words[1] = value.y;
  words[2] = value.z;
  words[3] = value.w;
#else
  CheckAligned(from, sizeof words);
  memcpy(words, from, sizeof words);
#endif
}

// Loads 8 aligned bytes that are read once.
LAYERCAST_HOST_DEVICE inline void LoadWords(const unsigned char* from, std::uint32_t (&words)[2]) {
#ifdef __CUDA_ARCH__
  const uint2 value = __ldcs(reinterpret_cast<const uint2*>(from));
  words[0] = value.x;
  words[1] = value.y;
#else
  CheckAligned(from, sizeof words);
  memcpy(words, from, sizeof words);
#endif
}

// Stores 4, 8 or 16 aligned bytes (or 32, aligned to 16) that this kernel does not read again.
LAYERCAST_HOST_DEVICE inline void StoreStreaming(const std::uint32_t (&words)[1], unsigned char* to) {
#ifdef __CUDA_ARCH__
  __stcs(reinterpret_cast<unsigned int*>(to), words[0]);
#else
  CheckAligned(to, sizeof words);
  memcpy(to, words, sizeof words);
#endif
}

LAYERCAST_HOST_DEVICE inline void StoreStreaming(const std::uint32_t (&words)[2], unsigned char* to) {
#ifdef __CUDA_ARCH__
  __stcs(reinterpret_cast<uint2*>(to), make_uint2(words[0], words[1]));
#else
  CheckAligned(to, sizeof words);
  memcpy(to, words, sizeof words);
#endif
}

LAYERCAST_HOST_DEVICE inline void StoreStreaming(const std::uint32_t (&words)[4], unsigned char* to) {
#ifdef __CUDA_ARCH__
  __stcs(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
#else
  CheckAligned(to, sizeof words);
  memcpy(to, words, sizeof words);
#endif
}

LAYERCAST_HOST_DEVICE inline void StoreStreaming(const std::uint32_t (&words)[8], unsigned char* to) {
  StoreStreaming({words[0], words[1], words[2], words[3]}, to);
  StoreStreaming({words[4], words[5], words[6], words[7]}, to + 16);
}

// Picks four of eight bytes: 0 to 3 are those of `low`, and 4 to 7 those of `high`. The lowest digit of `selector`
// chooses the lowest byte.
LAYERCAST_HOST_DEVICE inline std::uint32_t PickBytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selector);
#else
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t byte = selector >> (4 * i) & 7;
    picked |= static_cast<std::uint32_t>(both >> (8 * byte) & 0xff) << (8 * i);
  }
  return picked;
#endif
}

// The device's instruction that casts two numbers to e4m3fn, `low` into the low byte. For magnitudes below 464 it gives
// the code that E4M3Code finds, with the number's sign, also that of -0. Called only if the device has it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
inline constexpr bool kCastsToE4M3 = true;
__device__ inline std::uint32_t CastToE4M3(float low, float high) {
  return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3);
}
#else
inline constexpr bool kCastsToE4M3 = false;
LAYERCAST_HOST_DEVICE inline std::uint32_t CastToE4M3(float /*low*/, float /*high*/) { return 0; }
#endif

// x * y + z, rounded once.
LAYERCAST_HOST_DEVICE inline float FusedMultiplyAdd(float x, float y, float z) { return fmaf(x, y, z); }

// Merges the smaller value into `*into`: atomically on a device. On the host, a team's threads run one after the other.
LAYERCAST_HOST_DEVICE inline void MergeMin(unsigned long long* into, unsigned long long value) {
#ifdef __CUDA_ARCH__
  atomicMin(into, value);
#else
  if (value < *into) *into = value;
#endif
}

// Merges the larger value into `*into`, as MergeMin does. Neither may be negative.
LAYERCAST_HOST_DEVICE inline void MergeMax(float* into, float value) {
#ifdef __CUDA_ARCH__
  atomicMax(reinterpret_cast<unsigned int*>(into), __float_as_uint(value));
#else
  if (*into < value) *into = value;
#endif
}

}  // namespace layercast::cuda
