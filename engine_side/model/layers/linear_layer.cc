// LinearLayer: how the names of a linear layer's tensors lead to its parameters.
#include <algorithm>
#include <utility>

#include "layercast/error.h"
#include "layercast/model/linear.h"

namespace layercast {

void LinearLayer::AddBias(std::int64_t rows, ShardAxis axis) {
  AddParameter({{"bias", dtype(), {rows}}, axis, false, {}});
}

std::uint32_t LinearLayer::IndexOf(std::string_view name) const {
  if (!takes_quantized()) return ParameterIndex(name);
  const QuantizedForm& form = *quantized_form();
  if (form.NamesScale(name)) return ParameterIndex(form.kernel_scale());
  if (form.codes == DType::kF4 && name == QuantizedForm::kPackedCodes) return ParameterIndex("weight");
  if (NamesReciprocal(name)) return ParameterIndex(QuantizedForm::kGlobalScale);
  return ParameterIndex(name);
}

bool LinearLayer::NamesReciprocal(std::string_view name) const {
  return takes_quantized() && quantized_form()->has_global_scale && name == QuantizedForm::kGlobalReciprocal;
}

std::vector<PlacedPiece> LinearLayer::PlaceWhole(std::string_view name, std::string_view shard_id,
                                                 const TensorSpec& spec) const {
  const std::uint32_t index = IndexOf(name);
  if (!shard_id.empty() && IsInputScale(index)) {
    throw Error(ErrorCode::kInvalidArgument, "expected one scale of the whole fused layer, got one of its part '" +
                                                 std::string(shard_id) + "' alone");
  }
  std::vector<PlacedPiece> pieces = Module::Place(parameters()[index].spec.name, shard_id, spec);
  PlacedPiece& piece = pieces.front();
  piece.shared = !shard_id.empty();
  if (piece.shared) piece.shard_id = OwnShardId(shard_id);
  piece.reciprocal = NamesReciprocal(name);
  if (piece.reciprocal && spec.dtype != DType::kF32) {
    throw Error(ErrorCode::kInvalidArgument, "expected " + Describe(DType::kF32, {1}) + ", got " + Describe(spec));
  }
  return pieces;
}

// The layer's own copy of the shard id, which lives as long as the layer. Throws kInvalidArgument if it has no such
// shard.
std::string_view LinearLayer::OwnShardId(std::string_view shard_id) const {
  const auto own = std::ranges::find(shard_names(), shard_id, &ShardName::shard_id);
  if (own != shard_names().end()) return own->shard_id;
  throw Error(ErrorCode::kInvalidArgument, class_name() + " has no shard '" + std::string(shard_id) + "'");
}

std::string_view LinearLayer::CheckpointNameOf(std::uint32_t index) const {
  return IsScale(index) ? quantized_form()->checkpoint_scale : parameters()[index].spec.name;
}

}  // namespace layercast
