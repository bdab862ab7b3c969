// Buffers of an engine that pads or transposes its weights, and what their memory must hold: element by element.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/model/module.h"
#include "layercast/weight_layout.h"
#include "src/base/rounding.h"

namespace layercast::testing {

// Columns that lie one behind the other have this many elements between them.
inline constexpr std::int64_t kColumnGap = 5;

// Value.
struct LaidOut {
  CapturedBuffer buffer;  // without an address; as the engine describes it
  Shape tensor;
  bool transposed = false;

  // All of the buffer's memory once `bytes`, the tensor's, are there: gaps as they were, padding zero.
  std::vector<std::byte> Memory(std::span<const std::byte> bytes, std::size_t extent, std::byte gap) const {
    const auto in_three = [](std::vector<std::int64_t> dimensions, std::int64_t missing) {
      while (dimensions.size() < 3) dimensions.insert(dimensions.begin(), missing);
      return dimensions;
    };
    const auto at = [](std::int64_t index, std::size_t size) { return static_cast<std::size_t>(index) * size; };
    const Shape shape = in_three(buffer.shape, 1);
    const Shape inside = in_three(tensor, 1);
    const std::vector<std::int64_t> strides =
        buffer.strides.empty() ? Shape{shape[1] * shape[2], shape[2], 1} : in_three(buffer.strides, 0);
    const auto size = static_cast<std::size_t>(BitsPerElement(buffer.dtype)) / 8;
    std::vector<std::byte> memory(extent, gap);
    for (std::int64_t m = 0; m < shape[0]; ++m) {
      for (std::int64_t r = 0; r < shape[1]; ++r) {
        for (std::int64_t c = 0; c < shape[2]; ++c) {
          const std::int64_t row = transposed ? c : r;
          const std::int64_t col = transposed ? r : c;
          std::byte* place = memory.data() + at(m * strides[0] + r * strides[1] + c * strides[2], size);
          const bool padding = row >= inside[1] || col >= inside[2];
          const std::byte* from = bytes.data() + (padding ? 0 : at((m * inside[1] + row) * inside[2] + col, size));
          for (std::size_t b = 0; b < size; ++b) place[b] = padding ? std::byte{0} : from[b];
        }
      }
    }
    return memory;
  }
};

inline std::vector<LaidOut> LaidOutBuffers(const Module& model, const Recipe& recipe, const WeightLayout& layout) {
  std::vector<LaidOut> laid;
  const LoadPlan plan = LoadPlan::WithoutTensors(model);
  const auto add = [&](const TensorSpec& spec, Shape memory, bool values) {
    CapturedBuffer buffer{spec.name, nullptr, spec.dtype, std::move(memory), {}, {}};
    const std::size_t rank = buffer.shape.size();
    if (values && layout.transposed) std::swap(buffer.shape[rank - 2], buffer.shape[rank - 1]);
    if (values && layout.column_major) {
      const std::int64_t column = buffer.shape[rank - 2] + kColumnGap;
      buffer.strides = {column * buffer.shape[rank - 1], 1, column};
      if (rank == 2) buffer.strides.erase(buffer.strides.begin());
    }
    laid.push_back({std::move(buffer), spec.shape, values && layout.transposed});
  };
  for (const PlannedLayer& layer : plan.layers()) {
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      const PlannedParameter& parameter = plan.parameters()[layer.first_parameter + i];
      const std::vector<TensorSpec> specs = KernelTensorsOf(parameter, recipe);
      TensorSpec padded = parameter.spec;
      if (parameter.quantize) {
        const std::size_t rank = padded.shape.size();
        padded.shape[rank - 2] = RoundUp(padded.shape[rank - 2], layout.row_alignment);
        padded.shape[rank - 1] = RoundUp(padded.shape[rank - 1], layout.column_alignment);
      }
      const std::vector<TensorSpec> memory =
          parameter.quantize ? KernelTensorsOf(padded, recipe) : std::vector<TensorSpec>{padded};
      for (std::size_t t = 0; t < specs.size(); ++t) add(specs[t], memory[t].shape, parameter.quantize && t == 0);
    }
    for (const DerivedTensor& derived : layer.derived) {
      add({layer.path + "." + derived.spec.name, derived.spec.dtype, derived.spec.shape}, derived.spec.shape, false);
    }
  }
  return laid;
}

}  // namespace layercast::testing
