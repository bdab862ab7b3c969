// A module tree that was recorded instead of derived: an engine's own loader was run once, and every copy that it made
// is a placement. For architectures that ModelRegistry does not know, and for engines whose loader is the authority.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layercast/box.h"
#include "layercast/dtype.h"
#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

class Module;

// A parameter as the loader fills it, before anything is quantized. Value.
struct RecordedParameter {
  TensorSpec spec;           // full name ("model.layers.0.self_attn.qkv_proj.weight"), shape of this rank's part
  bool quantize = false;     // a recipe applies: a matrix or a stack of matrices, whose name ends with "weight"
  std::vector<Box> zeros{};  // what the loader fills with zeros, such as the padding of a vocabulary

  bool operator==(const RecordedParameter&) const = default;
};

// One copy that the loader made: a box of a checkpoint's tensor into a box of a parameter, of as many elements, in the
// same row-major order or with the last two dimensions swapped. Value.
struct RecordedCopy {
  std::uint32_t source = 0;     // index in Recording::sources
  std::uint32_t parameter = 0;  // index in Recording::parameters
  Box from;
  Box to;
  bool transposed = false;

  bool operator==(const RecordedCopy&) const = default;
};

// What a loader did with a checkpoint on one rank. Value.
struct Recording {
  std::vector<TensorSpec> sources;  // all that it was given; those without a copy are skipped
  std::vector<RecordedParameter> parameters;
  std::vector<RecordedCopy> copies;

  bool operator==(const Recording&) const = default;
};

// Builds the tree that places these tensors as they were recorded. It takes tensors of the recorded names and shapes
// alone: others are refused, with what was recorded. Their dtypes may differ, as long as they can be cast. Throws
// kInvalidArgument, naming it, for a repeated name, an index or box that is out of range, and a copy whose boxes differ
// in size; kUnsupported for a tensor that goes into parameters of several layers.
LAYERCAST_PUBLIC std::unique_ptr<Module> TreeOf(Recording recording);

}  // namespace layercast
