// Decodes single elements of any floating-point type in the obvious, slow way. Used for types that have no kernel, for
// error messages, and as the reference that kernels are tested against.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layercast/dtype.h"

namespace layercast {

// The value of an element whose bits are the low BitsPerElement(dtype) bits of `bits`. It is exact, since every type
// fits in a double. A call with an integer type or C64 is a bug.
double DecodeElement(DType dtype, std::uint64_t bits);

// The bits of element `index` of a packed row. Elements smaller than a byte fill bytes from the low bits up.
std::uint64_t ElementBits(DType dtype, const std::byte* row, std::int64_t index);

inline double ElementValue(DType dtype, const std::byte* row, std::int64_t index) {
  return DecodeElement(dtype, ElementBits(dtype, row, index));
}

}  // namespace layercast
