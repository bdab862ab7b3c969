#include "src/tensor/tensor_part.h"

#include "layercast/error.h"

namespace layercast {
namespace {

bool IsWhole(const TensorSpec& spec, const std::optional<TensorPart>& part) {
  return !part || part->whole == spec.shape;
}

std::string TextOf(const TensorSpec& spec, const std::optional<TensorPart>& part) {
  if (IsWhole(spec, part)) return "all of it";
  return "a part at " + ToString(part->offsets) + " of " + ToString(part->whole);
}

}  // namespace

std::string PartProblem(const TensorSpec& spec, const TensorPart& part) {
  const std::size_t rank = spec.shape.size();
  if (part.whole.size() != rank || part.offsets.size() != rank) {
    return "a part " + ToString(spec.shape) + " of " + ToString(part.whole) + " at " + ToString(part.offsets) +
           ": expected as many dimensions in each";
  }
  for (std::size_t d = 0; d < rank; ++d) {
    // Written without the sum of offset and size, which could overflow.
    if (part.offsets[d] < 0 || spec.shape[d] > part.whole[d] || part.offsets[d] > part.whole[d] - spec.shape[d]) {
      return "a part " + ToString(spec.shape) + " at " + ToString(part.offsets) + " leaves its tensor " +
             ToString(part.whole);
    }
  }
  try {
    (void)NumBytes(spec.dtype, part.whole);
  } catch (const Error& error) {
    return "a part of " + ToString(part.whole) + ": " + error.what();
  }
  return {};
}

void CheckYielded(const TensorSpec& spec, const std::optional<TensorPart>& declared,
                  const std::optional<TensorPart>& yielded) {
  if (IsWhole(spec, yielded) ? IsWhole(spec, declared) : yielded == declared) return;
  throw Error(ErrorCode::kInvalidArgument, "'" + spec.name + "': the source declared " + TextOf(spec, declared) +
                                               ", and yielded " + TextOf(spec, yielded));
}

std::string Describe(const Shape& shape, const TensorPart& part) {
  std::string text = "[";
  for (std::size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(part.offsets[d]) + ":" + std::to_string(part.offsets[d] + shape[d]);
  }
  return text + "] of " + ToString(part.whole);
}

std::string DescribePart(const NamedTensor& named) {
  const std::string name = "'" + named.name + "'";
  const bool fits =
      named.part && PartProblem({named.name, named.tensor.dtype, named.tensor.shape}, *named.part).empty();
  return fits ? name + " " + Describe(named.tensor.shape, *named.part) : name;
}

}  // namespace layercast
