// Copies elements between tensors in host memory by walks. Used wherever a checkpoint's tensors become parameters
// without a device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layercast/box.h"
#include "layercast/tensor.h"
#include "src/tensor/walk.h"

namespace layercast {

// The bytes of `elements` elements that lie one behind the other. They must fill whole bytes.
inline std::int64_t BytesOf(DType dtype, std::int64_t elements) { return elements * BitsPerElement(dtype) / 8; }

// Writes `count` packed elements, cast, to elements first, first + 1, ... of the walk over the tensor at `to`. Returns
// what Cast returns (src/tensor/cast.h).
bool Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const Walk& walk, std::int64_t first,
             std::int64_t count);

// Copies the elements of `source_box` to `box`, which has as many elements and lies in the tensor `spec` at
// `destination`. Casts them, and arranges them as `order` says.
void CopyBox(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
             std::byte* destination, ElementOrder order = {});
// Zeroes `box` in the tensor `spec` at `destination`.
void ZeroBox(const TensorSpec& spec, const Box& box, std::byte* destination);

}  // namespace layercast
