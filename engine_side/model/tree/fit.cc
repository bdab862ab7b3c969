#include "engine_side/model/tree/fit.h"

#include <string>

#include "layercast/error.h"
#include "src/tensor/cast.h"

namespace layercast {

void CheckFits(const TensorSpec& spec, DType dtype, const Shape& shape) {
  if (spec.shape == shape && (spec.dtype == dtype || CanCast(spec.dtype, dtype))) return;
  throw Error(ErrorCode::kInvalidArgument, "expected " + Describe(dtype, shape) + ", got " + Describe(spec));
}

std::int64_t Divide(std::string_view name, std::int64_t value, std::string_view divisor_name, std::int64_t divisor) {
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::kInvalidArgument, std::string(name) + " " + std::to_string(value) + what +
                                                 std::string(divisor_name) + " " + std::to_string(divisor));
  };
  if (value < 1 || divisor < 1) refuse(" must be at least 1, and so must ");
  if (value % divisor != 0) refuse(" is not divisible by ");
  return value / divisor;
}

void CheckParallel(const ParallelConfig& parallel) {
  const auto check = [](const std::string& kind, int rank, int size) {
    if (rank >= 0 && rank < size) return;
    throw Error(ErrorCode::kInvalidArgument, "expected " + kind + "_rank from 0 to " + kind + "_size - 1, got " + kind +
                                                 "_rank " + std::to_string(rank) + " of " + kind + "_size " +
                                                 std::to_string(size));
  };
  check("tp", parallel.tp_rank, parallel.tp_size);
  check("ep", parallel.ep_rank, parallel.ep_size);
  check("pp", parallel.pp_rank, parallel.pp_size);
}

std::vector<PlacedPiece> PlaceEqualParts(const ParallelConfig& parallel, std::uint32_t index, const TensorSpec& local,
                                         const TensorSpec& spec) {
  const std::int64_t count = local.shape[0];
  CheckFits(spec, local.dtype, {count * parallel.tp_size});
  return {{index, Box::Slice(spec.shape, 0, parallel.tp_rank * count, count), Box::Whole(local.shape), {}}};
}

}  // namespace layercast
