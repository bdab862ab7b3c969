// What kernels found wrong with values in device memory. Used by kernels that check values, and by those who start
// them. Includes nothing of CUDA, and is valid C++17.
#pragma once

#include <cstdint>
#include <cstring>

#include "src/base/digest/host_device.h"

namespace layercast {

// One word of device memory, into which kernels merge the first wrong value of a tensor (by index; NaN and infinity
// come before magnitudes that are too large). Set all its bytes to 0xff, run the kernels of a tensor, perhaps on
// several pieces, and read the word back at any time after that. Until then nothing that the kernels made of the tensor
// may be used.
using CudaFaultWord = unsigned long long;  // the type that atomicMin takes
inline constexpr CudaFaultWord kNoCudaFault = ~CudaFaultWord{0};

struct CudaFault {
  enum class Kind : std::uint8_t { kNan, kInfinity, kMinusInfinity, kAboveAmax };
  Kind kind;
  std::int64_t index;  // in a matrix row * cols + col; rows count from the weight's first
};

LAYERCAST_HOST_DEVICE constexpr CudaFaultWord EncodeCudaFault(CudaFault fault) {
  const CudaFaultWord last = fault.kind == CudaFault::Kind::kAboveAmax ? CudaFaultWord{1} << 63 : 0;
  return last | static_cast<CudaFaultWord>(fault.index) << 2 | static_cast<CudaFaultWord>(fault.kind);
}

// `word` must not be kNoCudaFault.
LAYERCAST_HOST_DEVICE constexpr CudaFault DecodeCudaFault(CudaFaultWord word) {
  return {static_cast<CudaFault::Kind>(word & 3), static_cast<std::int64_t>((word & ~(CudaFaultWord{1} << 63)) >> 2)};
}

// The same for casts: the first element that is infinite or NaN once it is cast, counted from the cast's first, and the
// value that it had before, of which the first 32 bits of a double are kept (20 of its mantissa).
struct CudaCastFault {
  std::int64_t index;
  double value;
};

LAYERCAST_HOST_DEVICE inline CudaFaultWord EncodeCudaCastFault(CudaCastFault fault) {
  std::uint64_t bits = 0x7FF8000000000000U;  // a NaN need not keep its own bits, of which the last may be cut off
  if (fault.value == fault.value) memcpy(&bits, &fault.value, sizeof bits);
  return static_cast<CudaFaultWord>(fault.index) << 32 | bits >> 32;
}

// `word` must not be kNoCudaFault, which no element below number 2^32 - 1 makes.
inline CudaCastFault DecodeCudaCastFault(CudaFaultWord word) {
  const std::uint64_t bits = static_cast<std::uint64_t>(word) << 32;
  CudaCastFault fault{static_cast<std::int64_t>(word >> 32), 0.0};
  memcpy(&fault.value, &bits, sizeof bits);
  return fault;
}

}  // namespace layercast
