// What layers share when they say where a tensor goes: the checks, the words in which they refuse one, the simplest
// answer.
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

// value / divisor. Throws kInvalidArgument "num_attention_heads 14 is not divisible by tp_size 4", and on anything
// below 1.
std::int64_t Divide(std::string_view name, std::int64_t value, std::string_view divisor_name, std::int64_t divisor);

// Throws kInvalidArgument unless every rank is one of its size: 0 <= tp_rank < tp_size, and so on.
void CheckParallel(const ParallelConfig& parallel);

// Of a vector `spec` every rank holds an equal part: this one's is all of `local`, its parameter number `index`.
std::vector<PlacedPiece> PlaceEqualParts(const ParallelConfig& parallel, std::uint32_t index, const TensorSpec& local,
                                         const TensorSpec& spec);

}  // namespace layercast
