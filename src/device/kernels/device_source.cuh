// The weight as kernels read it: its units, and what is wrong with their values. Value; borrows the memory. Used by the
// bodies of kernels.
#pragma once

#include <cstdint>

#include "src/device/kernels/cuda_fault.h"
#include "src/device/kernels/elements.cuh"

namespace layercast::cuda {

struct Source {
  const unsigned char* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;     // bytes
  std::int64_t first_element = 0;  // number of the first element within the weight
  CudaFaultWord* fault = nullptr;

  LAYERCAST_HOST_DEVICE std::int64_t units() const { return (cols + kUnit - 1) / kUnit; }  // of a row
};

// How units are read and written. `left` is the number of elements that are left in the row. `SourceType` is one of
// elements.cuh. If kWhole, rows consist of whole units, and the source and destination of each are aligned to their
// sizes (to at most 16 bytes). Otherwise bytes are moved one by one.
template <class SourceType, bool kWhole>
struct Access {
  using Type = SourceType;
  static constexpr int kBytes = kUnit * Type::kBytes;

  template <Reads kReads = Reads::kOnce>
  LAYERCAST_HOST_DEVICE static Unit<Type> Load(const unsigned char* from, std::int64_t left) {
    Unit<Type> loaded;
    if constexpr (kWhole) {
      LAYERCAST_UNROLL
      for (int i = 0; i < kBytes / 16; ++i) {
        std::uint32_t words[4];
        LoadWords<kReads>(from + 16 * i, words);
        LAYERCAST_UNROLL
        for (int w = 0; w < 4; ++w) loaded.words[4 * i + w] = words[w];
      }
    } else {
      LAYERCAST_UNROLL
      for (int w = 0; w < kBytes / 4; ++w) {
        loaded.words[w] = 0;
        LAYERCAST_UNROLL
        for (int b = 0; b < 4; ++b) {
          const int byte = 4 * w + b;
          if (byte < left * Type::kBytes) loaded.words[w] |= static_cast<std::uint32_t>(from[byte]) << (8 * b);
        }
      }
    }
    return loaded;
  }

  // Stores the words that a unit became.
  template <int kWords>
  LAYERCAST_HOST_DEVICE static void Store(const std::uint32_t (&words)[kWords], unsigned char* to, std::int64_t left) {
    if constexpr (kWhole) {
      StoreStreaming(words, to);
    } else {
      const std::int64_t bytes = (left < kUnit ? left : kUnit) * (4 * kWords) / kUnit;
      LAYERCAST_UNROLL
      for (int byte = 0; byte < 4 * kWords; ++byte) {
        if (byte < bytes) to[byte] = static_cast<unsigned char>(words[byte / 4] >> (8 * (byte % 4)) & 0xff);
      }
    }
  }
};

// Some of a weight's units: `count` of them, beginning at one, each row_step rows and unit_step units from the one
// before.
struct Walk {
  std::int64_t row = 0;
  std::int64_t unit = 0;  // in the row
  int row_step = 0;
  int unit_step = 0;
  int count = 0;
};

// Merges the first value above `limit` into the weight's fault. The value is looked for in memory again, so that
// kernels pay nothing for it while nothing is wrong.
template <class Type>
LAYERCAST_HOST_DEVICE __attribute__((noinline)) void ReportFaults(const Source& source, Walk walk,
                                                                  std::uint32_t limit) {
  using Bytes = Access<Type, false>;
  using Kind = CudaFault::Kind;
  for (; walk.count > 0; --walk.count, walk.row += walk.row_step, walk.unit += walk.unit_step) {
    const std::int64_t col = walk.unit * kUnit;
    const Unit<Type> values =
        Bytes::Load(source.data + walk.row * source.row_stride + walk.unit * Bytes::kBytes, source.cols - col);
    for (int i = 0; i < kUnit; ++i) {
      const std::uint32_t magnitude = Type::Magnitude(values.words, i);
      if (magnitude <= limit) continue;
      Kind kind = Kind::kAboveAmax;
      if (magnitude > Type::kInfinity) kind = Kind::kNan;
      if (magnitude == Type::kInfinity) kind = SignOf(values, i) == 0 ? Kind::kInfinity : Kind::kMinusInfinity;
      MergeMin(source.fault, EncodeCudaFault({kind, source.first_element + walk.row * source.cols + col + i}));
    }
  }
}

}  // namespace layercast::cuda
