#include "python/native/memory/dlpack_dtypes.h"

#include <array>

namespace layercast::python {
namespace {

struct Row {
  std::uint8_t code, bits;
  DType dtype;
};

// https://dmlc.github.io/dlpack/latest/c_api.html, DLDataTypeCode
constexpr std::array kRows = {
    Row{0, 8, DType::kI8},          Row{0, 16, DType::kI16},    Row{0, 32, DType::kI32},
    Row{0, 64, DType::kI64},        Row{1, 8, DType::kU8},      Row{1, 16, DType::kU16},
    Row{1, 32, DType::kU32},        Row{1, 64, DType::kU64},    Row{2, 16, DType::kF16},
    Row{2, 32, DType::kF32},        Row{2, 64, DType::kF64},    Row{4, 16, DType::kBF16},
    Row{5, 64, DType::kC64},        Row{6, 8, DType::kBool},    Row{10, 8, DType::kF8E4M3},
    Row{11, 8, DType::kF8E4M3FNUZ}, Row{12, 8, DType::kF8E5M2}, Row{13, 8, DType::kF8E5M2FNUZ},
    Row{14, 8, DType::kF8E8M0},     Row{15, 6, DType::kF6E2M3}, Row{16, 6, DType::kF6E3M2},
    Row{17, 4, DType::kF4}};

}  // namespace

std::optional<DType> DTypeFromDlpack(nb::dlpack::dtype type) {
  for (const Row& row : kRows) {
    if (row.code != type.code || row.bits != type.bits) continue;
    if (type.lanes == 1 || (type.lanes == 2 && row.dtype == DType::kF4)) return row.dtype;
  }
  return std::nullopt;
}

std::optional<nb::dlpack::dtype> DlpackFromDType(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype != dtype) continue;
    return nb::dlpack::dtype{row.code, row.bits, static_cast<std::uint16_t>(dtype == DType::kF4 ? 2 : 1)};
  }
  return std::nullopt;
}

}  // namespace layercast::python
