#include "src/tensor/kernels/axis_amax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "layercast/error.h"
#include "src/tensor/cast.h"
#include "src/tensor/kernels/scan.h"

namespace layercast {
namespace {

constexpr std::size_t kMostAxes = 8;  // KeptAxes has so many bits

bool Keeps(KeptAxes kept, std::size_t axis) { return axis < kMostAxes && (kept >> axis & 1) != 0; }

// The largest finite magnitude of each column of a matrix.
void ScanColumns(const MatrixView& matrix, float* amax) {
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    Cast(matrix.dtype, matrix.row(r), DType::kF32, reinterpret_cast<std::byte*>(row.data()), row.size());
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (std::isfinite(row[c])) amax[c] = std::max(amax[c], std::abs(row[c]));
    }
  }
}

}  // namespace

TensorSpec AsRead(const TensorSpec& spec, const AmaxRequest& request) {
  const Shape& shape = request.read_as;
  if (shape.empty()) return spec;
  const bool fits = shape.size() <= kMostAxes && std::ranges::all_of(shape, [](auto extent) { return extent > 0; }) &&
                    NumElements(shape) == spec.num_elements();
  if (fits) return {spec.name, spec.dtype, shape};
  throw Error(ErrorCode::kInvalidArgument, "magnitudes of '" + spec.name + "' " + Describe(spec) +
                                               ": expected a shape of as many elements, got " + ToString(shape));
}

void CheckKept(const Shape& shape, KeptAxes kept) {
  const auto leading = static_cast<std::size_t>(std::countr_one(kept));
  const unsigned first = (1U << leading) - 1U;
  const unsigned last = shape.empty() || shape.size() > kMostAxes ? 0U : 1U << (shape.size() - 1);
  if (leading < shape.size() && (kept == first || kept == (first | last))) return;
  throw Error(ErrorCode::kInvalidArgument,
              "magnitudes of a tensor " + ToString(shape) + ": axes " + std::to_string(kept) +
                  ", expected its first dimensions, perhaps its last, and not all of them");
}

std::int64_t NumKept(const Shape& shape, KeptAxes kept) {
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) elements *= Keeps(kept, d) ? shape[d] : 1;
  return elements;
}

AxisSplit AxisSplit::Of(const Shape& shape, KeptAxes kept) {
  AxisSplit split;
  const auto leading = static_cast<std::size_t>(std::countr_one(kept));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    (d < leading ? split.outer : Keeps(kept, d) ? split.last : split.reduced) *= shape[d];
  }
  return split;
}

std::vector<float> AmaxOver(const TensorSpec& spec, const std::byte* data, KeptAxes kept, WorkerPool& pool) {
  CheckKept(spec.shape, kept);
  std::vector<float> amax(static_cast<std::size_t>(NumKept(spec.shape, kept)), 0.0F);
  const AxisSplit split = AxisSplit::Of(spec.shape, kept);
  MatrixView matrix{.dtype = spec.dtype, .data = data, .rows = split.outer, .cols = split.reduced, .row_stride = 0};
  if (amax.empty()) return amax;
  if (split.last == 1) {
    matrix.row_stride = spec.num_bytes() / split.outer;
    ScanRows(matrix, pool, amax);
    return amax;
  }
  if (!CanCast(spec.dtype, DType::kF32)) {
    throw Error(ErrorCode::kUnsupported, "magnitudes by column of " + Describe(spec) + ": expected bf16, f16 or f32");
  }
  const std::int64_t matrix_bytes = spec.num_bytes() / split.outer;
  pool.For(static_cast<std::size_t>(split.outer), [&](std::size_t o) {
    const auto index = static_cast<std::int64_t>(o);
    ScanColumns({.dtype = spec.dtype,
                 .data = data + index * matrix_bytes,
                 .rows = split.reduced,
                 .cols = split.last,
                 .row_stride = matrix_bytes / std::max<std::int64_t>(split.reduced, 1)},
                amax.data() + index * split.last);
  });
  return amax;
}

}  // namespace layercast
