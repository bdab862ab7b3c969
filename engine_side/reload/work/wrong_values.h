// Says of a value that must not be served where the checkpoint has it: in which tensor, and where in all of it. Who
// publishes a checkpoint knows neither fused layers nor the part of one that a rank holds. Used by the stages' work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine_side/reload/work/stage_work.h"
#include "layercast/tensor.h"

namespace layercast {

// Throws kCorrupt for element number `element` of a piece. It has this value, which is not finite, or is no more once
// it is cast to the parameter's dtype.
//   "layer a.qkv_proj: 'a.k_proj.weight': row 35, column 7 holds 70144 (bf16), which is beyond 65504, the largest
//   finite f16"
[[noreturn]] void ThrowWrongElement(const SourcePiece& piece, std::int64_t element, double value);
// Throws that for the first such element of a view, which must have one. Slow.
[[noreturn]] void ThrowFirstWrongElement(const SourcePiece& piece, const RegionView& view);
// Throws that for the first such element of a whole tensor with this largest magnitude, of which this rank holds a part
// alone: the value may lie in another's. (If it holds all, the cast finds it. A tensor that is read in parts is left to
// the cast too, since some of them may be dropped.)
void CheckWholeTensor(const LoadPlan& plan, std::uint32_t tensor, const NamedTensor& named, float amax);

// Throws kCorrupt for an element of a matrix of a parameter. `problem` says what is wrong with it, and ends before the
// place: "expected finite values, got NaN".
[[noreturn]] void ThrowWrongWeight(const PlacedMatrix& place, std::int64_t row, std::int64_t col,
                                   std::string_view problem);

// "row 35, column 7", of element number `element` of a tensor of this shape, row-major.
std::string PlaceIn(const Shape& shape, std::int64_t element);
// "70144 (bf16), which is beyond 65504, the largest finite f16".
std::string BeyondWords(double value, std::string_view from, DType to);
// "row 35, column 7 holds " and BeyondWords or, of a value that is not finite itself, "expected finite values, got NaN
// at row 35, column 7".
std::string WrongValueWords(double value, std::string_view from, DType to, const std::string& place);

}  // namespace layercast
