// What layers share when they say where a tensor goes: the checks, the wording of refusals, and the simplest placement.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "layercast/model/placement.h"
#include "layercast/parallel.h"
#include "layercast/tensor.h"

namespace layercast {

// Throws kInvalidArgument "expected [8, 4] bf16, got [8, 2] bf16" unless `spec` has this shape and a dtype that may be
// cast to `dtype`.
void CheckFits(const TensorSpec& spec, DType dtype, const Shape& shape);

// Returns value / divisor. Throws kInvalidArgument if it leaves a remainder ("num_attention_heads 14 is not divisible
// by tp_size 4"), or if either number is below 1.
std::int64_t Divide(std::string_view name, std::int64_t value, std::string_view divisor_name, std::int64_t divisor);

// Throws kInvalidArgument unless every rank is within its size: 0 <= tp_rank < tp_size, and so on.
void CheckParallel(const ParallelConfig& parallel);

// Places a vector `spec` of which every rank holds an equal part. This rank's part fills `local`, the parameter at
// `index`.
std::vector<PlacedPiece> PlaceEqualParts(const ParallelConfig& parallel, std::uint32_t index, const TensorSpec& local,
                                         const TensorSpec& spec);

}  // namespace layercast
