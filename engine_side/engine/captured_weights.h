// The weights that a forward pass reads, found once by name among the captured buffers: from then on their addresses
// are what they are, as in a CUDA graph. Used where the decoder and its blocks are made.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/engine/linear.h"
#include "engine_side/engine/weight_view.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/module.h"

namespace layercast {

// Borrows the buffers' table; one thread only. Everything throws kInvalidArgument or kUnsupported, naming the buffer:
// one that is missing, of another shape, strided or on another device.
class CapturedWeights {
 public:
  // `device`: where the pass runs, and so where the buffers must be.
  explicit CapturedWeights(std::span<const CapturedBuffer> buffers, const Device& device = {});

  // A parameter of `layer`, which lies at `path` in the tree, in whatever kernel format its buffers are.
  WeightView Find(const Module& layer, const std::string& path, std::string_view parameter = "weight");
  // A tensor that derives from parameters of `layer`: rows of its last dimension. A pass that reads it reads them by
  // it.
  WeightView FindDerived(const Module& layer, const std::string& path, std::string_view name);
  // Weight and, if the layer has one, bias.
  LinearWeights Linear(const Module& layer, const std::string& path);
  // Those of a layer that is a stack of them (experts): parameters `name`_weight and `name`_bias.
  std::vector<LinearWeights> LinearStack(const Module& layer, const std::string& path, const std::string& name);

  // Throws kUnsupported naming a buffer that nothing has asked for: the forward pass would not read it. Those of a
  // draft model are left alone.
  void CheckAllUsed() const;

 private:
  // A matrix that shares its buffers with the others of a stack: which one, of how many. The default: it has its own.
  struct InStack {
    std::int64_t index, count;
  };
  // Which recipe wrote a weight shows in the names, types and shapes of its scales (engine_side/quant/RECIPES.md).
  WeightView FindMatrix(const std::string& name, const TensorSpec& matrix, const InStack& place = {0, 0});
  // One scale for each `block` of a weight of shape `weight`.
  ScaleGrid Scales(const std::string& name, DType dtype, const Shape& weight, const Shape& block, const InStack& place);
  // Of a matrix's tensor of that shape.
  const std::byte* AddressOf(const std::string& name, DType dtype, const Shape& shape, const InStack& place);
  const CapturedBuffer* Lookup(const std::string& name);  // null: none; otherwise marked as used
  const CapturedBuffer& Get(const std::string& name, DType dtype, const Shape& shape);

  Device device_;
  std::map<std::string_view, const CapturedBuffer*> by_name_;
  std::set<std::string_view> used_;
};

}  // namespace layercast
