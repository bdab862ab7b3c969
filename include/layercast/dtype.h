// Element types: every type that a safetensors file can hold. Used wherever tensors are described.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "layercast/export.h"

namespace layercast {

// The values are part of the wire format (src/wire/FORMAT.md): append, never renumber.
enum class DType : std::uint8_t {
  kBool = 0,
  kF4 = 1,
  kF6E2M3 = 2,
  kF6E3M2 = 3,
  kU8 = 4,
  kI8 = 5,
  kF8E5M2 = 6,
  kF8E4M3 = 7,
  kF8E8M0 = 8,
  kF8E4M3FNUZ = 9,
  kF8E5M2FNUZ = 10,
  kI16 = 11,
  kU16 = 12,
  kF16 = 13,
  kBF16 = 14,
  kI32 = 15,
  kU32 = 16,
  kF32 = 17,
  kC64 = 18,
  kF64 = 19,
  kI64 = 20,
  kU64 = 21,
};

LAYERCAST_PUBLIC std::span<const DType> AllDTypes();
LAYERCAST_PUBLIC int BitsPerElement(DType dtype);  // 4, 6, 8, 16, 32, 64
LAYERCAST_PUBLIC bool IsFloatingPoint(DType dtype);

// "BF16", "F8_E4M3", ...: the spelling of safetensors headers. Unknown names give nullopt.
LAYERCAST_PUBLIC std::string_view SafetensorsName(DType dtype);
LAYERCAST_PUBLIC std::optional<DType> DTypeFromSafetensors(std::string_view name);

// "bf16", "f8_e4m3", ...: the spelling of messages and --json output.
LAYERCAST_PUBLIC std::string_view Name(DType dtype);

// "bfloat16", "torch.float32", "float8_e4m3fn": the spellings of config.json and of torch. Unknown names give nullopt.
LAYERCAST_PUBLIC std::optional<DType> DTypeFromTorch(std::string_view name);

}  // namespace layercast
