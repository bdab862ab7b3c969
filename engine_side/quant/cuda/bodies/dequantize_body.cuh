// Turns codes and scales, as a recipe's kernel tensors hold them, back to full precision, with the bits of
// engine_side/quant/dequantize.h. A thread does some columns of a row.
#pragma once

#include <cstdint>

#include "engine_side/quant/cuda/bodies/device_codes.cuh"
#include "engine_side/quant/cuda_kernels.h"
#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/tensor/conversions.h"

namespace layercast::cuda {

inline constexpr std::uint32_t kNanBits = 0x7fc00000U;

LAYERCAST_HOST_DEVICE inline float SignedE4M3(std::uint32_t code) {
  const std::uint32_t magnitude = code & 0x7f;
  const float value = magnitude == 0x7f ? FloatOfBits(kNanBits) : E4M3Value(magnitude);
  return FloatOfBits(BitsOfFloat(value) | (code & 0x80) << 24);
}

LAYERCAST_HOST_DEVICE inline float E8M0Value(std::uint32_t code) {
  return FloatOfBits(code == 0 ? 0x00400000U : code == 0xff ? kNanBits : code << 23);
}

// The types of codes. At reads element `index` of a weight, row-major.
struct E4M3Elements {
  LAYERCAST_HOST_DEVICE static float At(const std::uint8_t* codes, std::int64_t index) {
    return SignedE4M3(codes[index]);
  }
};
struct Int8Elements {
  LAYERCAST_HOST_DEVICE static float At(const std::uint8_t* codes, std::int64_t index) {
    return static_cast<float>(static_cast<std::int8_t>(codes[index]));
  }
};
struct E2M1Elements {
  LAYERCAST_HOST_DEVICE static float At(const std::uint8_t* codes, std::int64_t index) {
    const std::uint32_t code = codes[index / 2] >> (index % 2 * 4) & 15;
    return FloatOfBits(BitsOfFloat(E2M1Value(code & 7)) | (code & 8) << 28);
  }
};

template <class Elements, class To>
struct DequantizeColumns {
  static constexpr std::int64_t kColumns = 8;

  CudaCodes weight;
  typename To::Bits* values;

  static std::int64_t OfRow(const CudaCodes& weight) { return (weight.cols + kColumns - 1) / kColumns; }

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t of_row = (weight.cols + kColumns - 1) / kColumns;
    const std::int64_t row = i / of_row;
    const std::int64_t first = i % of_row * kColumns;
    const std::int64_t blocks = (weight.cols + weight.block_cols - 1) / weight.block_cols;
    const std::int64_t row_block = row / weight.block_rows * blocks;
    for (std::int64_t col = first; col < first + kColumns && col < weight.cols; ++col) {
      const std::int64_t index = row * weight.cols + col;
      const float scale = ScaleAt(row_block + col / weight.block_cols);
      values[index] = To::FromFloat(Elements::At(weight.codes, index) * scale);
    }
  }

 private:
  LAYERCAST_HOST_DEVICE float ScaleAt(std::int64_t block) const {
    if (weight.scale_type == kDTypeF32) return static_cast<const float*>(weight.scales)[block];
    const std::uint32_t code = static_cast<const std::uint8_t*>(weight.scales)[block];
    const float scale = weight.scale_type == kDTypeF8E4M3 ? SignedE4M3(code) : E8M0Value(code);
    return weight.global_scale == nullptr ? scale : scale * *weight.global_scale;
  }
};

// Calls body(Elements{}) for the codes' dtype.
template <class Body>
void ForElementsOf(DType elements, const Body& body) {
  if (elements == kDTypeF8E4M3) return body(E4M3Elements{});
  if (elements == kDTypeI8) return body(Int8Elements{});
  if (elements == kDTypeF4) return body(E2M1Elements{});
  throw Error(ErrorCode::kInternal, "no codes of dtype " + std::to_string(static_cast<int>(elements)));
}

// Calls body(To{}) for the dtype of the values.
template <class Body>
void ForWeightType(DType dtype, const Body& body) {
  if (dtype == kDTypeBF16) return body(conversions::BF16{});
  if (dtype == kDTypeF16) return body(conversions::F16{});
  if (dtype == kDTypeF32) return body(conversions::F32{});
  throw Error(ErrorCode::kInternal, "no weights of dtype " + std::to_string(static_cast<int>(dtype)));
}

template <class Runner>
void RunDequantize(const Runner& runner, const CudaCodes& weight, DType dtype, void* values) {
  ForElementsOf(weight.elements, [&](auto elements) {
    ForWeightType(dtype, [&](auto to) {
      using To = decltype(to);
      using Columns = DequantizeColumns<decltype(elements), To>;
      runner.Run(Columns{weight, static_cast<typename To::Bits*>(values)}, weight.rows * Columns::OfRow(weight));
    });
  });
}

}  // namespace layercast::cuda
