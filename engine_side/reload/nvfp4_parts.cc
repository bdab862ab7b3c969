#include "engine_side/reload/nvfp4_parts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine_side/quant/dequantize.h"
#include "engine_side/quant/kernel_tensors.h"
#include "layercast/error.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

constexpr std::int64_t kNvfp4BlockBytes = 8;

}  // namespace

std::vector<float> Nvfp4Parts::GlobalScales(const QuantizedLayer::Part& part) const {
  const TensorSpec& spec = checkpoint_.specs()[part.global_scale];
  const std::int64_t count = MatrixStack::Of(checkpoint_.specs()[part.weight].shape).count;
  const std::string where = "layer " + layer_.path + ": '" + spec.name + "' expected ";
  if ((spec.num_elements() != 1 && spec.num_elements() != count) || !CanCast(spec.dtype, DType::kF32)) {
    throw Error(ErrorCode::kInvalidArgument, where + Describe(DType::kF32, {count}) + ", got " + Describe(spec));
  }
  std::vector<float> scales(static_cast<std::size_t>(spec.num_elements()));
  Cast(spec.dtype, checkpoint_.Tensor(std::size_t{part.global_scale}).tensor.data, DType::kF32,
       reinterpret_cast<std::byte*>(scales.data()), scales.size());
  for (float& scale : scales) {
    const float number = scale;
    if (part.packed) scale = 1.0F / number;
    if (std::isfinite(number) && std::isfinite(scale) && scale >= 0.0F) continue;
    throw Error(ErrorCode::kCorrupt, where +
                                         (part.packed ? "a finite number above zero, whose reciprocal is the scale"
                                                      : "a finite scale that is not negative") +
                                         ", got " + std::to_string(number));
  }
  if (scales.size() == 1) scales.resize(static_cast<std::size_t>(count), scales.front());
  return scales;
}

float Nvfp4Parts::LargestGlobalScale(const QuantizedLayer::Fused& fused) const {
  float largest = 0.0F;
  for (const QuantizedLayer::Part& part : fused.parts) largest = std::max(largest, GlobalScale(part));
  return largest;
}

void Nvfp4Parts::Codes(const QuantizedLayer::Fused& fused, std::byte* codes) const { Rescale(fused, codes, nullptr); }

void Nvfp4Parts::Scales(const QuantizedLayer::Fused& fused, std::byte* scales) const {
  Rescale(fused, nullptr, scales);
}

// What is not asked for is made in memory that nobody keeps.
void Nvfp4Parts::Rescale(const QuantizedLayer::Fused& fused, std::byte* codes, std::byte* scales) const {
  const float largest = LargestGlobalScale(fused);
  std::vector<std::uint8_t> unwanted;
  for (const QuantizedLayer::Part& part : fused.parts) {
    const std::int64_t blocks = BlocksOf(part);
    const std::int64_t code_bytes = blocks * kNvfp4BlockBytes;
    unwanted.resize(static_cast<std::size_t>(codes == nullptr ? code_bytes : blocks));
    const NamedTensor own_codes = checkpoint_.Tensor(std::size_t{part.weight});
    const NamedTensor own_scales = checkpoint_.Tensor(std::size_t{part.scale});
    RescaleNvfp4(reinterpret_cast<const std::uint8_t*>(own_codes.tensor.data),
                 reinterpret_cast<const std::uint8_t*>(own_scales.tensor.data), static_cast<std::size_t>(blocks),
                 GlobalScale(part), largest,
                 {.codes = codes == nullptr ? unwanted.data() : reinterpret_cast<std::uint8_t*>(codes),
                  .scales = scales == nullptr ? unwanted.data() : reinterpret_cast<std::uint8_t*>(scales)});
    if (codes != nullptr) codes += code_bytes;
    if (scales != nullptr) scales += blocks;
  }
}

std::int64_t Nvfp4Parts::BlocksOf(const QuantizedLayer::Part& part) const {
  const QuantizedForm& form = *layer_.layer->quantized_form();
  const TensorSpec& codes = checkpoint_.specs()[part.weight];
  const TensorSpec& scales = checkpoint_.specs()[part.scale];
  const Shape expected = {codes.shape[0], codes.shape[1] / kNvfp4BlockBytes};
  const std::string where = "layer " + layer_.path + ": '";
  if (codes.shape[1] % kNvfp4BlockBytes != 0) {
    throw Error(ErrorCode::kInvalidArgument, where + codes.name + "' expected whole blocks of 16 columns, got " +
                                                 std::to_string(2 * codes.shape[1]) + " columns");
  }
  if (scales.dtype != form.scale_dtype || scales.shape != expected) {
    throw Error(ErrorCode::kInvalidArgument, where + scales.name + "' expected " +
                                                 Describe(form.scale_dtype, expected) + ", got " + Describe(scales));
  }
  return scales.num_elements();
}

}  // namespace layercast
