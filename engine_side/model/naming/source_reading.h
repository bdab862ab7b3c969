// Turns the transforms of a tensor into parts of one reading of its elements. Used by SourceTransforms::Apply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "layercast/model/source_transforms.h"

namespace layercast {

// The numbers of the source axes that together make up one axis of a part, as digits make up a number: the last one is
// the least significant.
using Digits = std::vector<std::uint8_t>;

// Narrows the box (`begin`, `extent`) to the elements [first, first + count) of the axis that `digits` make up. Returns
// false, and changes nothing, if those elements are not a box.
bool NarrowDigits(std::span<std::int64_t> begin, std::span<std::int64_t> extent, const Digits& digits,
                  std::int64_t first, std::int64_t count);

// One tensor while its transforms are applied. Every part is read from the tensor in one shape: the tensor's own, with
// an axis cut in two where a transform needs that, and axes joined again where none does. One thread only.
class SourceReading {
 public:
  explicit SourceReading(const TensorSpec& tensor);

  // Applies the next transform to all parts. Throws as SourceTransforms::Apply does.
  void Apply(const SourceTransform& transform);
  // The parts as they are after all transforms. Throws kUnsupported if copying boxes cannot achieve what was applied.
  std::vector<SourceView> Views();

 private:
  struct Part {
    TensorSpec spec;
    std::vector<std::int64_t> begin, extent;  // the part's box in the source
    std::vector<Digits> axes;                 // for each axis, its source axes of more than one element
  };
  using ShapeOf = std::function<Shape(const Part& part)>;

  [[noreturn]] void Refuse(ErrorCode code, const std::string& what) const;
  std::size_t AxisOf(const Part& part) const;
  void Squeeze(Part& part) const;
  void Transpose(Part& part) const;
  void Reshape();
  std::vector<Part> Split(const Part& part) const;
  void Deinterleave();

  Shape WantedShape(const Part& part) const;
  void Regroup(std::size_t axis, const ShapeOf& shape_of);
  bool RegroupPart(Part& part, std::size_t axis, const Shape& shape);
  void Cut(std::uint8_t axis, std::int64_t inner);
  void JoinAxes();
  bool CanJoin(std::uint8_t axis) const;
  Part Narrowed(const Part& part, const std::string& to, std::size_t axis, std::int64_t first,
                std::int64_t count) const;
  SourceView ViewOf(const Part& part) const;

  const TensorSpec tensor_;
  const SourceTransform* transform_ = nullptr;  // the one that was applied last
  Shape source_;                                // the shape in which the tensor is read
  std::vector<Part> parts_;
};

}  // namespace layercast
