#include "src/tensor/value_tables.h"

#include <cstddef>

#include "layercast/dtype.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

template <std::size_t kCodes>
void Fill(DType dtype, std::array<float, kCodes>& values) {
  for (std::size_t code = 0; code < kCodes; ++code) values[code] = static_cast<float>(DecodeElement(dtype, code));
}

ValueTables MakeValueTables() {
  ValueTables tables{};
  Fill(DType::kF8E4M3, tables.f8_e4m3);
  Fill(DType::kF8E8M0, tables.f8_e8m0);
  Fill(DType::kF4, tables.f4);
  return tables;
}

}  // namespace

const ValueTables& GetValueTables() {
  static const ValueTables tables = MakeValueTables();
  return tables;
}

}  // namespace layercast
