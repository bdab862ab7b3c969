// How a checkpoint's tensors are to be read where a trainer lays them out otherwise than the model does: under another
// shape, the other way round, or as several tensors in one. Declared by a family or a host program, by name; shapes are
// never guessed from. (Another dtype needs no declaration: tensors are cast to the model's, and reported as cast.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/placement.h"
#include "layercast/model/weights_mapper.h"
#include "layercast/tensor.h"

namespace layercast {

// One declaration: the checkpoint's tensors of these names, and what becomes of them. Value.
struct LAYERCAST_PUBLIC SourceTransform {
  enum class Kind : std::uint8_t { kSqueeze, kReshape, kTranspose, kSplit, kDeinterleave };
  struct Part {
    std::string to;         // takes the place of what matched, as in a NameRule
    std::int64_t size = 0;  // along the axis; of kSplit alone
  };

  NameRule::Match match = NameRule::Match::kSuffix;
  std::string from;
  Kind kind = Kind::kTranspose;
  std::size_t axis = 0;
  Shape shape{};
  std::vector<Part> parts{};

  // Leaves out an axis of one: [C, 1, K] -> [C, K].
  static SourceTransform Squeeze(NameRule::Match match, std::string from, std::size_t axis);
  // The same elements, row-major, in this shape; -1, at most once, stands for what is left.
  static SourceTransform Reshape(NameRule::Match match, std::string from, Shape shape);
  // The last two axes the other way round: [in, out] -> [out, in].
  static SourceTransform Transpose(NameRule::Match match, std::string from);
  // One tensor for each part, one behind the other along the axis, which their sizes fill.
  static SourceTransform Split(NameRule::Match match, std::string from, std::size_t axis, std::vector<Part> parts);
  // One tensor for each part, in turns along the axis: of two parts, the first has the even ones, the second the odd.
  static SourceTransform Deinterleave(NameRule::Match match, std::string from, std::size_t axis,
                                      std::vector<std::string> parts);

  std::string Describe() const;  // "suffix qkv.weight: split axis 0 into q.weight (8), k.weight (4), v.weight (4)"
};

// A tensor of the tree's making within one of the checkpoint. Value.
struct LAYERCAST_PUBLIC SourceView {
  TensorSpec spec;  // what the tree is asked about
  Shape read_as;    // the checkpoint tensor's elements, row-major, have this shape, ...
  Box within;       // ... of which this part is meant, ...
  // ... and of which each axis of `spec` is made up of these, as a number is of digits: those of more than one element.
  // Of a tensor that no rule matches there are none.
  std::vector<std::vector<std::uint8_t>> axes;
  bool transposed = false;  // they come in order, but that those of the last two axes are the other way round

  // `piece`, whose source box is of `spec`, with the box that it is of `read_as`. Throws kUnsupported, naming both, for
  // elements that are no box of it.
  PlacedPiece InSource(const PlacedPiece& piece) const;
};

// Declarations in order: those that match a tensor's name apply to it, and to all parts of it, one after the other.
// Immutable value; copies share their rules.
class LAYERCAST_PUBLIC SourceTransforms {
 public:
  SourceTransforms() = default;  // every tensor is read as it is
  // Throws kInvalidArgument, naming the rule: nothing to match, no parts, sizes below one.
  explicit SourceTransforms(std::vector<SourceTransform> transforms);

  bool Matches(std::string_view name) const;
  // Throws kInvalidArgument, naming tensor, rule and shape, where one does not apply to such a tensor, kUnsupported for
  // an order of transforms that no copy of boxes can follow.
  std::vector<SourceView> Apply(const TensorSpec& spec) const;
  // Those that match, as Describe says them.
  std::vector<std::string> Describe(std::string_view name) const;

 private:
  struct Rule;
  std::shared_ptr<const std::vector<Rule>> rules_;  // the other owners are copies of this value
};

}  // namespace layercast
