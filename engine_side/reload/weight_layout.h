// Weights that are padded, transposed or column-major in an engine's memory (layercast/weight_layout.h): which part of
// a captured buffer is the tensor, and which is padding. The receiver sees captured buffers as their tensors alone;
// only the commit stage knows that there is more.
#pragma once

#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layer_recipes.h"
#include "layercast/captured_buffers.h"
#include "layercast/weight_layout.h"

namespace layercast {

// Of the kernel tensors of a plan, in the order of KernelTensorsOf: their shapes with the padding. Throws
// kInvalidArgument where an alignment is below 1, and as Recipe::KernelTensors does.
std::vector<Shape> PaddedShapesOf(const LoadPlan& plan, const LayerRecipes& recipes, const WeightLayout& layout);

// The same memory, each buffer as its tensor, by strides. Throws kInvalidArgument naming every buffer that does not
// have the layout, with the shape and strides that it should have and those that it has.
CapturedBuffers TensorsIn(const CapturedBuffers& captured, const LoadPlan& plan, const LayerRecipes& recipes,
                          const WeightLayout& layout);

// What surrounds a tensor in memory of the shape `padded`: parts that do not overlap.
std::vector<CapturedBuffer> PaddingOf(const CapturedBuffer& tensor, const Shape& padded);

}  // namespace layercast
