#include "layercast/model/quantized_form.h"

#include "src/base/rounding.h"

namespace layercast {

std::string_view QuantizedForm::recipe() const {
  switch (scales) {
    case Scales::kTensor: return "fp8_per_tensor";
    case Scales::kChannel: return "fp8_per_channel";
    case Scales::kBlock: break;
  }
  return block_rows == 128 && block_cols == 128 ? "fp8_per_block" : "";
}

std::string_view QuantizedForm::kernel_scale() const {
  return scales == Scales::kBlock ? "weight_scale_inv" : "weight_scale";
}

Shape QuantizedForm::ScaleShape(std::int64_t rows, std::int64_t cols) const {
  switch (scales) {
    case Scales::kTensor: return {1};
    case Scales::kChannel: return {rows, 1};
    case Scales::kBlock: break;
  }
  return {CeilDivide(rows, block_rows), CeilDivide(cols, block_cols)};
}

}  // namespace layercast
