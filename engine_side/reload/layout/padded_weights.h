// Weights that are padded, transposed or column-major in an engine's memory (layercast/weight_layout.h): which part of
// a captured buffer is the tensor, and which part is padding. The receiver sees each captured buffer as just its
// tensor; only the commit stage knows that there is more.
#pragma once

#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "layercast/captured_buffers.h"
#include "layercast/receiver_options.h"
#include "layercast/weight_layout.h"

namespace layercast {

// The shapes of a plan's kernel tensors with padding, in the order of KernelTensorsOf. Throws kInvalidArgument if an
// alignment is below 1, and what Recipe::KernelTensors throws.
std::vector<Shape> PaddedShapesOf(const LoadPlan& plan, const LayerRecipes& recipes, const WeightLayout& layout);

// The same memory, with each buffer that `quantization` gives a layout described, by shape and strides, as its tensor.
// Throws kInvalidArgument, naming every buffer that does not have the layout, with the shape and strides that it should
// have and those that it has.
CapturedBuffers TensorsIn(CapturedBuffers captured, const Module& model, const QuantizationConfig& quantization);

// The padding beside a tensor in memory of the shape `padded`, as parts that do not overlap.
std::vector<CapturedBuffer> PaddingOf(const CapturedBuffer& tensor, const Shape& padded);

}  // namespace layercast
