#include "layercast/model/quantized_form.h"

#include <algorithm>
#include <iterator>

#include "engine_side/model/naming/code_names.h"
#include "engine_side/model/naming/scale_shape.h"

namespace layercast {

QuantizedForm QuantizedForm::Mxfp4() {
  return {.scales = Scales::kBlock,
          .codes = DType::kF4,
          .scale_dtype = DType::kU8,
          .block_rows = 1,
          .block_cols = 32,
          .power_of_two = true};
}

QuantizedForm QuantizedForm::Mxfp4InBlocks() {
  QuantizedForm form = Mxfp4();
  form.checkpoint_scale = "scales";
  form.in_blocks = true;
  return form;
}

QuantizedForm QuantizedForm::Mxfp8() {
  return {.scales = Scales::kBlock, .scale_dtype = DType::kU8, .block_rows = 1, .block_cols = 32, .power_of_two = true};
}

QuantizedForm QuantizedForm::Nvfp4(std::int64_t block_cols) {
  return {.scales = Scales::kBlock,
          .codes = DType::kF4,
          .scale_dtype = DType::kF8E4M3,
          .block_rows = 1,
          .block_cols = block_cols,
          .has_global_scale = true};
}

std::string_view QuantizedForm::recipe() const {
  if (packed_bits != 0 || has_zero_points) return "";
  if (codes == DType::kF4 && has_global_scale) return block_cols == kNvfp4Columns ? "nvfp4" : "";
  if (codes == DType::kF4) return "mxfp4";
  if (codes == DType::kI8) return scales == Scales::kChannel ? "int8_per_channel" : "";
  switch (scales) {
    case Scales::kTensor: return "fp8_per_tensor";
    case Scales::kChannel: return "fp8_per_channel";
    case Scales::kBlock: break;
  }
  if (scale_dtype == DType::kU8) return "mxfp8";
  return block_rows == 128 && block_cols == 128 ? "fp8_per_block" : "";
}

std::vector<std::string> QuantizedForm::StackedScales() const {
  std::vector<std::string> names = SuffixesOfStack(checkpoint_scale);
  if (!other_scale.empty()) std::ranges::move(SuffixesOfStack(other_scale), std::back_inserter(names));
  return names;
}

std::vector<std::string> QuantizedForm::StackedGlobalScales() const {
  return has_global_scale ? SuffixesOfStack(kGlobalScale) : std::vector<std::string>();
}

std::vector<std::string> QuantizedForm::StackedGlobalReciprocals() const {
  return has_global_scale ? SuffixesOfStack(kGlobalReciprocal) : std::vector<std::string>();
}

std::string_view QuantizedForm::kernel_scale() const {
  return scales == Scales::kBlock && scale_dtype == DType::kF32 ? kScalesOfBlocks : "weight_scale";
}

Shape QuantizedForm::ScaleShape(std::int64_t rows, std::int64_t cols) const {
  switch (scales) {
    case Scales::kTensor: return layercast::ScaleShape(rows, cols, 0, 0);
    case Scales::kChannel: return layercast::ScaleShape(rows, cols, 1, 0);
    case Scales::kBlock: break;
  }
  return layercast::ScaleShape(rows, cols, block_rows, block_cols);
}

}  // namespace layercast
