// One of an engine's captured buffers, as the engine describes it (captured_buffers.h has the table of all).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

// Value; the memory is borrowed.
struct LAYERCAST_PUBLIC CapturedBuffer {
  std::string name;  // kernel name: "model.layers.0.self_attn.qkv_proj.weight_scale"
  std::byte* address = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::int64_t> strides{};  // elements, one per dimension; empty: contiguous, row-major
  Device device{};

  bool operator==(const CapturedBuffer&) const = default;
};

}  // namespace layercast
