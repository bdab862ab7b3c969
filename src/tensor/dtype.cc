#include "layercast/dtype.h"

#include <array>

#include "src/base/check.h"

namespace layercast {
namespace {

struct Row {
  DType dtype;
  int bits;
  bool floating;
  std::string_view safetensors;
  std::string_view name;
  std::string_view torch;  // empty: torch has no such type
};

constexpr std::array<Row, 22> kTable = {{
    {DType::kBool, 8, false, "BOOL", "bool", "bool"},
    {DType::kF4, 4, true, "F4", "f4", "float4_e2m1fn_x2"},
    {DType::kF6E2M3, 6, true, "F6_E2M3", "f6_e2m3", ""},
    {DType::kF6E3M2, 6, true, "F6_E3M2", "f6_e3m2", ""},
    {DType::kU8, 8, false, "U8", "u8", "uint8"},
    {DType::kI8, 8, false, "I8", "i8", "int8"},
    {DType::kF8E5M2, 8, true, "F8_E5M2", "f8_e5m2", "float8_e5m2"},
    {DType::kF8E4M3, 8, true, "F8_E4M3", "f8_e4m3", "float8_e4m3fn"},
    {DType::kF8E8M0, 8, true, "F8_E8M0", "f8_e8m0", "float8_e8m0fnu"},
    {DType::kF8E4M3FNUZ, 8, true, "F8_E4M3FNUZ", "f8_e4m3fnuz", "float8_e4m3fnuz"},
    {DType::kF8E5M2FNUZ, 8, true, "F8_E5M2FNUZ", "f8_e5m2fnuz", "float8_e5m2fnuz"},
    {DType::kI16, 16, false, "I16", "i16", "int16"},
    {DType::kU16, 16, false, "U16", "u16", "uint16"},
    {DType::kF16, 16, true, "F16", "f16", "float16"},
    {DType::kBF16, 16, true, "BF16", "bf16", "bfloat16"},
    {DType::kI32, 32, false, "I32", "i32", "int32"},
    {DType::kU32, 32, false, "U32", "u32", "uint32"},
    {DType::kF32, 32, true, "F32", "f32", "float32"},
    {DType::kC64, 64, false, "C64", "c64", "complex64"},
    {DType::kF64, 64, true, "F64", "f64", "float64"},
    {DType::kI64, 64, false, "I64", "i64", "int64"},
    {DType::kU64, 64, false, "U64", "u64", "uint64"},
}};

constexpr auto kAll = [] {
  std::array<DType, kTable.size()> all{};
  for (std::size_t i = 0; i < kTable.size(); ++i) all[i] = kTable[i].dtype;
  return all;
}();

const Row& RowOf(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  LAYERCAST_CHECK(index < kTable.size());
  return kTable[index];
}

std::optional<DType> Find(std::string_view Row::*column, std::string_view name) {
  for (const Row& row : kTable) {
    if (!name.empty() && row.*column == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace

std::span<const DType> AllDTypes() { return kAll; }
int BitsPerElement(DType dtype) { return RowOf(dtype).bits; }
bool IsFloatingPoint(DType dtype) { return RowOf(dtype).floating; }
std::string_view SafetensorsName(DType dtype) { return RowOf(dtype).safetensors; }
std::string_view Name(DType dtype) { return RowOf(dtype).name; }

std::optional<DType> DTypeFromSafetensors(std::string_view name) { return Find(&Row::safetensors, name); }

std::optional<DType> DTypeFromTorch(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name == "half") return DType::kF16;
  if (name == "float") return DType::kF32;
  return Find(&Row::torch, name);
}

}  // namespace layercast
