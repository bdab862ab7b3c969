// What a tensor's transforms make of it, as parts of one reading of its elements. Used by SourceTransforms::Apply.
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

// Axes of a source, by their numbers, that together make up one axis of what is read of it, as digits make up a number:
// the last is the lowest.
using Digits = std::vector<std::uint8_t>;

// Narrows the box of these digits to the elements [first, first + count) of their axis. False, and nothing is changed:
// they are no box.
bool NarrowDigits(std::span<std::int64_t> begin, std::span<std::int64_t> extent, const Digits& digits,
                  std::int64_t first, std::int64_t count);

// One tensor while its transforms are applied. All that is made of it is read in one shape: the tensor's own, whose
// axes are cut in two where a transform needs it, and joined again where none does. One thread only.
class SourceReading {
 public:
  explicit SourceReading(const TensorSpec& tensor);

  // Throws as SourceTransforms::Apply does.
  void Apply(const SourceTransform& transform);
  // Throws kUnsupported where no copy of boxes can follow what was applied.
  std::vector<SourceView> Views();

 private:
  struct Part {
    TensorSpec spec;
    std::vector<std::int64_t> begin, extent;  // a box of the source
    std::vector<Digits> axes;                 // of each axis, those of more than one element
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
  const SourceTransform* transform_ = nullptr;  // the last one
  Shape source_;                                // what the tensor is read as
  std::vector<Part> parts_;
};

}  // namespace layercast
