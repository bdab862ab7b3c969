// How a checkpoint's tensors are read if the trainer lays them out differently from the model: in another shape,
// transposed, or several tensors in one. A family or a host program declares this by the tensors' names; nothing is
// guessed from shapes. (Another dtype needs no declaration: tensors are cast to the model's, and reported as cast.)
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

// One declaration: which of a checkpoint's tensors it is about, by name, and what becomes of them. Value.
struct LAYERCAST_PUBLIC SourceTransform {
  enum class Kind : std::uint8_t { kSqueeze, kReshape, kTranspose, kSplit, kDeinterleave };
  struct Part {
    std::string to;         // takes the place of what matched, as in a NameRule
    std::int64_t size = 0;  // along the axis; kSplit alone has it
  };

  NameRule::Match match = NameRule::Match::kSuffix;
  std::string from;
  Kind kind = Kind::kTranspose;
  std::size_t axis = 0;
  Shape shape{};
  std::vector<Part> parts{};

  // Drops an axis of size one: [C, 1, K] -> [C, K].
  static SourceTransform Squeeze(NameRule::Match match, std::string from, std::size_t axis);
  // Gives the same elements, row-major, another shape. One dimension may be -1, which stands for what is left.
  static SourceTransform Reshape(NameRule::Match match, std::string from, Shape shape);
  // Swaps the last two axes: [in, out] -> [out, in].
  static SourceTransform Transpose(NameRule::Match match, std::string from);
  // Makes one tensor for each part. The parts follow each other along the axis, whose size is the sum of theirs.
  static SourceTransform Split(NameRule::Match match, std::string from, std::size_t axis, std::vector<Part> parts);
  // Makes one tensor for each part. The parts alternate along the axis: of two, the first has the even elements, the
  // second the odd ones.
  static SourceTransform Deinterleave(NameRule::Match match, std::string from, std::size_t axis,
                                      std::vector<std::string> parts);

  std::string Describe() const;  // "suffix qkv.weight: split axis 0 into q.weight (8), k.weight (4), v.weight (4)"
};

// Where a tensor that transforms make lies within its checkpoint tensor. Value.
struct LAYERCAST_PUBLIC SourceView {
  TensorSpec spec;  // the tensor that transforms make, which the tree is asked about
  Shape read_as;    // the shape in which the checkpoint tensor's elements are read, row-major
  Box within;       // the part of `read_as` that `spec` is
  // For each axis of `spec`, the axes of `read_as` whose indices make up its index, as digits make up a number. Axes of
  // a single element are left out. Empty for a tensor that no rule matches.
  std::vector<std::vector<std::uint8_t>> axes;
  bool transposed = false;  // the axes are in order, except that those of the last two axes of `spec` are swapped

  // Returns `piece`, whose source box refers to `spec`, with the box of `read_as` as its source box. Throws
  // kUnsupported, naming both, if its elements are not a box of `read_as`.
  PlacedPiece InSource(const PlacedPiece& piece) const;
};

// Declarations, in order. All that match a tensor's name apply, one after the other, to the tensor and to every part
// that earlier ones made of it. Immutable value; copies share their rules.
class LAYERCAST_PUBLIC SourceTransforms {
 public:
  SourceTransforms() = default;  // every tensor is read as it is
  // Throws kInvalidArgument, naming the rule, if one has nothing to match, no parts, or sizes below one.
  explicit SourceTransforms(std::vector<SourceTransform> transforms);

  bool Matches(std::string_view name) const;
  // The tensors that the declarations make of a checkpoint tensor. Throws kInvalidArgument, naming tensor, rule and
  // shape, if a rule cannot apply to such a tensor, and kUnsupported for an order of transforms that cannot be carried
  // out by copying boxes.
  std::vector<SourceView> Apply(const TensorSpec& spec) const;
  // The declarations that match the name, each as SourceTransform::Describe has it.
  std::vector<std::string> Describe(std::string_view name) const;
  std::vector<std::string> Describe() const;  // all declarations

 private:
  struct Rule;
  std::shared_ptr<const std::vector<Rule>> rules_;  // the other owners are copies of this value
};

}  // namespace layercast
