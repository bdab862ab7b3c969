#include "engine_side/quant/kernel_tensors.h"

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine_side/model/naming/code_names.h"
#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {

MatrixStack MatrixStack::Of(const Shape& shape) {
  if (shape.size() == 2) return {1, shape[0], shape[1]};
  if (shape.size() == 3) return {shape[0], shape[1], shape[2]};
  throw Error(ErrorCode::kInvalidArgument,
              "a quantized weight: expected a matrix or a stack of matrices, got " + ToString(shape));
}

std::vector<TensorSpec> KernelTensorsOf(const TensorSpec& weight, const Recipe& recipe) {
  const MatrixStack stack = MatrixStack::Of(weight.shape);
  if (!weight.name.ends_with(kWeightName)) {
    throw Error(ErrorCode::kInvalidArgument,
                "a quantized weight: expected a name that ends with 'weight', got '" + weight.name + "'");
  }
  std::vector<TensorSpec> tensors = recipe.KernelTensors(weight.dtype, stack.rows, stack.cols);
  for (TensorSpec& tensor : tensors) {
    tensor.name.insert(0, weight.name, 0, weight.name.size() - kWeightName.size());
    if (weight.shape.size() == 2) continue;
    if (tensor.shape == Shape{1}) tensor.shape.clear();
    tensor.shape.insert(tensor.shape.begin(), stack.count);
  }
  return tensors;
}

KernelTensorView OfMatrix(std::int64_t index, const Shape& weight, const TensorSpec& tensor, std::byte* memory) {
  LAYERCAST_CHECK(index >= 0);
  std::span<const std::int64_t> shape = tensor.shape;
  if (weight.size() == 3) shape = shape.subspan(1);
  KernelTensorView view = KernelTensorView::Of(shape, memory);
  view.data += index * view.num_elements() * BitsPerElement(tensor.dtype) / 8;
  return view;
}

}  // namespace layercast
