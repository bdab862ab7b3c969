// Maps our dtypes and devices to torch's. Used where captured memory becomes tensors.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "layercast/dtype.h"
#include "layercast/tensor.h"

namespace layercast {

// The torch type of a kernel tensor's elements; nullopt if no kernel format has such elements in a buffer.
inline std::optional<at::ScalarType> TorchTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32: return at::kFloat;
    case DType::kBF16: return at::kBFloat16;
    case DType::kF16: return at::kHalf;
    case DType::kF8E4M3: return at::kFloat8_e4m3fn;
    case DType::kI8: return at::kChar;
    case DType::kI64: return at::kLong;
    case DType::kU8: return at::kByte;
    default: return std::nullopt;
  }
}

inline at::Device TorchDeviceOf(const Device& device) {
  if (device.kind == Device::Kind::kHost) return {at::kCPU};
  return {at::kCUDA, static_cast<c10::DeviceIndex>(device.index)};
}

}  // namespace layercast
