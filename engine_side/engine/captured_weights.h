// Finds the weights that a forward pass reads, by name, among the captured buffers. This is done once: from then on the
// pass uses the addresses, as a CUDA graph does. Used where decoders and their blocks are described.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "engine_side/engine/cpu/kernels/weight_view.h"
#include "layercast/captured_buffers.h"

namespace layercast {

class Module;

// Borrows the table of buffers; one thread only. Every lookup throws kInvalidArgument or kUnsupported, naming the
// buffer, if it is missing, has another shape or dtype, is strided, or is on another device.
class CapturedWeights {
 public:
  // `device` is where the pass runs, and where the buffers have to be.
  explicit CapturedWeights(std::span<const CapturedBuffer> buffers, const Device& device = {});

  // A parameter of `layer`, which is at `path` in the tree, in whatever kernel format its buffers are.
  WeightView Find(const Module& layer, const std::string& path, std::string_view parameter = "weight");
  // A tensor that is derived from parameters of `layer`, as rows of its last dimension. Its source parameters then
  // count as used too.
  WeightView FindDerived(const Module& layer, const std::string& path, std::string_view name);
  // The layer's weight, and its bias if it has one.
  LinearWeights Linear(const Module& layer, const std::string& path);
  // The weights of a layer that is a stack of linear layers (experts): parameters `name`_weight and `name`_bias.
  std::vector<LinearWeights> LinearStack(const Module& layer, const std::string& path, const std::string& name);

  // Throws kUnsupported, naming the buffer, if some buffer was never looked up: the forward pass would not read it.
  // Buffers of a draft model, and scales that this engine only holds, are exempt.
  void CheckAllUsed() const;

 private:
  // The place of a matrix in a stack that shares its buffers. With count 0, the matrix has buffers of its own.
  struct InStack {
    std::int64_t index, count;
  };
  // Finds a weight matrix. The names, types and shapes of its scales tell which recipe wrote it
  // (engine_side/quant/RECIPES.md).
  WeightView FindMatrix(const std::string& name, const TensorSpec& matrix, const InStack& place = {0, 0});
  // The scales of a weight of shape `weight`, one for each `block` of it.
  ScaleGrid Scales(const std::string& name, DType dtype, const Shape& weight, const Shape& block, const InStack& place);
  // The address of a matrix's tensor, which has this shape.
  const std::byte* AddressOf(const std::string& name, DType dtype, const Shape& shape, const InStack& place);
  const CapturedBuffer* Lookup(const std::string& name);  // null if there is none; marks the buffer as used
  const CapturedBuffer& Get(const std::string& name, DType dtype, const Shape& shape);

  Device device_;
  std::map<std::string_view, const CapturedBuffer*> by_name_;
  std::set<std::string_view> used_;
};

}  // namespace layercast
