#include "engine_side/quant/recipe.h"

#include <cstring>

#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

float ScaleAt(DType type, const std::byte* scales, std::size_t index) {
  if (type == DType::kF32) {
    float scale = 0.0F;
    std::memcpy(&scale, scales + index * sizeof(scale), sizeof(scale));
    return scale;
  }
  const auto code = std::to_integer<std::uint8_t>(scales[index]);
  return type == DType::kF8E4M3 ? GetValueTables().f8_e4m3[code] : GetValueTables().f8_e8m0[code];
}

}  // namespace

QuantizedWeight Recipe::Read(std::span<const KernelTensorView> tensors) const {
  const CodeFormat form = format();
  const KernelTensorView& codes = tensors[0];
  QuantizedWeight weight{.codes = reinterpret_cast<const std::uint8_t*>(codes.data),
                         .rows = codes.rows,
                         .cols = form.ColsOf(codes.cols),
                         .scales = std::vector<float>(static_cast<std::size_t>(tensors[1].num_elements())),
                         .elements = form.elements};
  weight.block_rows = form.BlockRowsOf(weight.rows);
  weight.block_cols = form.BlockColsOf(weight.cols);
  const float global = form.has_global_scale ? ScaleAt(DType::kF32, tensors[2].data, 0) : 1.0F;
  for (std::size_t i = 0; i < weight.scales.size(); ++i) {
    weight.scales[i] = ScaleAt(form.scales, tensors[1].data, i) * global;
  }
  return weight;
}

}  // namespace layercast
