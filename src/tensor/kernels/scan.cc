#include "src/tensor/kernels/scan.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "src/base/check.h"
#include "src/base/raise_to.h"
#include "src/base/rounding.h"
#include "src/tensor/element.h"
#include "src/tensor/kernels/scan_kernels.h"

namespace layercast {
namespace {

constexpr std::int64_t kJobBytes = std::int64_t{1} << 20;

std::int64_t RowBytes(const MatrixView& matrix) { return (matrix.cols * BitsPerElement(matrix.dtype) + 7) / 8; }

bool HasKernel(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32 || dtype == DType::kF8E4M3;
}

float Magnitude(DType dtype, std::uint32_t max_bits) { return static_cast<float>(DecodeElement(dtype, max_bits)); }

void RowMaxBits(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  switch (BitsPerElement(matrix.dtype)) {
    case 8: return RowMaxBits8(matrix, max_bits);
    case 16: return RowMaxBits16(matrix, max_bits);
    default: return RowMaxBits32(matrix, max_bits);
  }
}

MatrixView Rows(const MatrixView& matrix, std::int64_t first, std::int64_t count) {
  MatrixView part = matrix;
  part.data = matrix.row(first);
  part.rows = count;
  return part;
}

// A contiguous matrix is reshaped into rows of a quarter of a job, and a shorter last one in a part of its own, so that
// its shape does not matter. Others stay as they are. Either part may be empty.
std::array<MatrixView, 2> Reshape(const MatrixView& matrix) {
  const std::int64_t elements = matrix.rows * matrix.cols;
  const std::int64_t width = kJobBytes / 8;  // even elements of half a byte fill whole bytes
  const bool contiguous = matrix.row_stride == RowBytes(matrix) && matrix.cols * BitsPerElement(matrix.dtype) % 8 == 0;
  if (!contiguous) return {matrix, {}};
  MatrixView body = matrix;
  body.cols = width;
  body.row_stride = RowBytes(body);
  body.rows = elements / width;
  MatrixView tail = body;
  tail.data = body.row(body.rows);
  tail.cols = elements % width;
  tail.rows = tail.cols == 0 ? 0 : 1;
  return {body, tail};
}

// Calls body(first row, rows) for bands of about kJobBytes.
template <class Body>
void ForBands(const MatrixView& matrix, WorkerPool& pool, const Body& body) {
  const std::int64_t rows_per_job = std::max<std::int64_t>(1, kJobBytes / std::max<std::int64_t>(1, RowBytes(matrix)));
  const std::int64_t jobs = CeilDivide(matrix.rows, rows_per_job);
  pool.For(static_cast<std::size_t>(jobs), [&](std::size_t job) {
    const std::int64_t first = static_cast<std::int64_t>(job) * rows_per_job;
    body(first, std::min(rows_per_job, matrix.rows - first));
  });
}

// The obvious loop over one row. `col` is that of the first NaN or infinity, or -1.
struct RowScan {
  double amax = 0.0;
  std::int64_t col = -1;
};

RowScan ScanRowPlainly(DType dtype, const std::byte* row, std::int64_t cols) {
  RowScan result;
  const bool complex = dtype == DType::kC64;
  const std::int64_t parts = complex ? 2 : 1;
  for (std::int64_t i = 0; i < cols * parts; ++i) {
    const double value = std::fabs(ElementValue(complex ? DType::kF32 : dtype, row, i));
    if (std::isfinite(value)) {
      result.amax = std::max(result.amax, value);
    } else if (result.col < 0) {
      result.col = i / parts;
    }
  }
  return result;
}

float ToFloat(double amax) {
  return static_cast<float>(std::min(amax, static_cast<double>(std::numeric_limits<float>::max())));
}

ScanResult ScanPlainly(const MatrixView& matrix, WorkerPool& pool) {
  std::vector<RowScan> found(static_cast<std::size_t>(matrix.rows));
  ForBands(matrix, pool, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r) {
      found[static_cast<std::size_t>(r)] = ScanRowPlainly(matrix.dtype, matrix.row(r), matrix.cols);
    }
  });
  ScanResult result;
  double amax = 0.0;
  for (std::int64_t r = 0; r < matrix.rows; ++r) {
    const RowScan& row = found[static_cast<std::size_t>(r)];
    amax = std::max(amax, row.amax);
    if (result.first_non_finite < 0 && row.col >= 0) result.first_non_finite = r * matrix.cols + row.col;
  }
  result.amax = ToFloat(amax);
  return result;
}

// The largest bits of all elements. It takes so many rows at a time that their results fit the stack.
std::uint32_t MaxBits(const MatrixView& matrix) {
  std::array<std::uint32_t, 256> of_rows;
  std::uint32_t largest = 0;
  for (std::int64_t first = 0; first < matrix.rows; first += std::ssize(of_rows)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(of_rows), matrix.rows - first);
    const auto found = std::span(of_rows).first(static_cast<std::size_t>(count));
    RowMaxBits(Rows(matrix, first, count), found);
    largest = std::max(largest, *std::ranges::max_element(found));
  }
  return largest;
}

ScanResult ScanPart(const MatrixView& matrix, WorkerPool& pool) {
  if (matrix.rows == 0 || matrix.cols == 0) return {};
  if (!HasKernel(matrix.dtype)) return ScanPlainly(matrix, pool);
  std::atomic<std::uint32_t> max_bits = 0;
  ForBands(matrix, pool,
           [&](std::int64_t first, std::int64_t count) { RaiseTo(max_bits, MaxBits(Rows(matrix, first, count))); });
  const float amax = Magnitude(matrix.dtype, max_bits);
  if (std::isfinite(amax)) return {.amax = amax};
  return ScanPlainly(matrix, pool);  // rare: there is a NaN or infinity, and this finds out where
}

bool IsScanned(DType dtype) { return IsFloatingPoint(dtype) || dtype == DType::kC64; }

}  // namespace

MatrixView AsMatrix(const TensorSpec& spec, const std::byte* data) {
  const std::int64_t cols = spec.shape.empty() ? 1 : spec.shape.back();
  const std::int64_t elements = spec.num_elements();
  return {.dtype = spec.dtype,
          .data = data,
          .rows = cols == 0 ? 0 : elements / cols,
          .cols = cols,
          .row_stride = cols * BitsPerElement(spec.dtype) / 8};
}

ScanResult Scan(const MatrixView& matrix, WorkerPool& pool) {
  ScanResult result;
  if (!IsScanned(matrix.dtype)) return result;
  std::int64_t before = 0;
  for (const MatrixView& part : Reshape(matrix)) {
    const ScanResult found = ScanPart(part, pool);
    result.amax = std::max(result.amax, found.amax);
    if (result.first_non_finite < 0 && found.first_non_finite >= 0) {
      result.first_non_finite = before + found.first_non_finite;
    }
    before += part.rows * part.cols;
  }
  return result;
}

ScanResult Scan(const MatrixView& matrix) {
  static WorkerPool alone(1);  // has no threads, and so nothing that its callers share
  return Scan(matrix, alone);
}

void ScanRows(const MatrixView& matrix, WorkerPool& pool, std::span<float> amax) {
  LAYERCAST_CHECK(static_cast<std::int64_t>(amax.size()) == matrix.rows);
  std::fill(amax.begin(), amax.end(), 0.0F);
  if (!IsScanned(matrix.dtype)) return;
  ForBands(matrix, pool, [&](std::int64_t first, std::int64_t count) {
    std::vector<std::uint32_t> max_bits(static_cast<std::size_t>(count));
    if (HasKernel(matrix.dtype)) RowMaxBits(Rows(matrix, first, count), max_bits);
    for (std::int64_t r = 0; r < count; ++r) {
      float& row = amax[static_cast<std::size_t>(first + r)];
      if (HasKernel(matrix.dtype)) row = Magnitude(matrix.dtype, max_bits[static_cast<std::size_t>(r)]);
      if (HasKernel(matrix.dtype) && std::isfinite(row)) continue;
      row = ToFloat(ScanRowPlainly(matrix.dtype, matrix.row(first + r), matrix.cols).amax);
    }
  });
}

}  // namespace layercast
