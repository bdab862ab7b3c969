#include "engine_side/quant/recipes/recipe_parts.h"

#include <cmath>
#include <cstdlib>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/element.h"
#include "src/tensor/kernel_dtypes.h"

namespace layercast {
namespace {

constexpr std::int64_t kMinJobBytes = std::int64_t{2} << 20;
constexpr std::int64_t kJobsPerThread = 4;

[[noreturn]] void ThrowNonFinite(const MatrixView& piece, std::int64_t first_row, std::int64_t index) {
  const std::int64_t row = index / piece.cols;
  const std::int64_t col = index % piece.cols;
  throw NonFiniteWeight(ElementValue(piece.dtype, piece.row(row), col), first_row + row, col);
}

void CheckAmax(float found, float given, const std::string& where) {
  if (found <= given) return;
  std::ostringstream message;
  message << std::setprecision(9) << "the weight has magnitude " << found << where << ", more than the " << given
          << " that came with it";
  throw Error(ErrorCode::kCorrupt, message.str());
}

}  // namespace

std::string NonFiniteName(double value) { return std::isnan(value) ? "NaN" : value > 0 ? "infinity" : "-infinity"; }

NonFiniteWeight::NonFiniteWeight(double value, std::int64_t row, std::int64_t col)
    : Error(ErrorCode::kCorrupt, "the weight has " + NonFiniteName(value) + " at row " + std::to_string(row) +
                                     ", column " + std::to_string(col)),
      value_(value),
      row_(row),
      col_(col) {}

void CheckSource(std::string_view recipe, DType dtype, std::int64_t rows, std::int64_t cols) {
  if (!IsKernelDType(dtype)) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(recipe) + " takes weights of bf16, f16 or f32, got " + std::string(Name(dtype)));
  }
  NumElements({rows, cols});  // throws on a negative or absurd size
}

void CheckWholeBlocks(std::string_view recipe, std::int64_t cols, std::int64_t block) {
  if (cols % block == 0) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(recipe) + " takes columns in blocks of " +
                                               std::to_string(block) + ", got " + std::to_string(cols) +
                                               " on this rank");
}

void CheckPiece(const Recipe& recipe, const MatrixView& piece, std::int64_t first_row,
                std::span<const KernelTensorView> outputs, std::size_t count, std::int64_t code_cols) {
  LAYERCAST_CHECK(outputs.size() == count && outputs[0].cols == code_cols);
  const std::int64_t rows = outputs[0].rows;
  LAYERCAST_CHECK(first_row >= 0 && piece.rows >= 0 && first_row + piece.rows <= rows);
  LAYERCAST_CHECK(first_row % recipe.row_granularity() == 0);
  LAYERCAST_CHECK(first_row + piece.rows == rows || piece.rows % recipe.row_granularity() == 0);
}

float TensorAmax(const Recipe& recipe, const MatrixView& piece, const AmaxInput& amax, std::int64_t rows,
                 WorkerPool& pool) {
  if (std::isfinite(amax.tensor) && amax.tensor >= 0.0F) return amax.tensor;
  if (!(amax.tensor < 0.0F)) {
    throw Error(ErrorCode::kCorrupt, "the weight's largest magnitude came as NaN or infinity");
  }
  if (piece.rows != rows) {
    throw Error(ErrorCode::kInvalidArgument, std::string(recipe.name()) +
                                                 " needs the whole weight or its largest magnitude, got " +
                                                 std::to_string(piece.rows) + " of " + std::to_string(rows) + " rows");
  }
  const ScanResult found = Scan(piece, pool);
  if (found.first_non_finite >= 0) ThrowNonFinite(piece, 0, found.first_non_finite);
  return found.amax;
}

void CheckValues(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax, WorkerPool& pool) {
  const ScanResult found = Scan(piece, pool);
  if (found.first_non_finite >= 0) ThrowNonFinite(piece, first_row, found.first_non_finite);
  if (amax.tensor >= 0.0F) CheckAmax(found.amax, amax.tensor, "");
  if (amax.rows.empty()) return;
  std::vector<float> rows(static_cast<std::size_t>(piece.rows));
  ScanRows(piece, pool, rows);
  for (std::int64_t r = 0; r < piece.rows; ++r) {
    CheckAmax(rows[static_cast<std::size_t>(r)], amax.rows[static_cast<std::size_t>(first_row + r)],
              " in row " + std::to_string(first_row + r));
  }
}

void ThrowWrongValue(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax, WorkerPool& pool) {
  CheckValues(piece, first_row, amax, pool);
  LAYERCAST_CHECK(false && "a kernel refused a value that the scan accepts");
  std::abort();  // not reached
}

MatrixView RowsOf(const MatrixView& matrix, std::int64_t first, std::int64_t count) {
  MatrixView part = matrix;
  part.data = matrix.row(first);
  part.rows = count;
  return part;
}

std::int64_t RowsOfABand(const MatrixView& matrix, std::int64_t granularity, const WorkerPool& pool) {
  const std::int64_t row_bytes = std::max<std::int64_t>(1, matrix.cols * BitsPerElement(matrix.dtype) / 8);
  const auto jobs_wanted = static_cast<std::int64_t>(pool.threads()) * kJobsPerThread;
  const std::int64_t rows = std::max(matrix.rows / jobs_wanted, kMinJobBytes / row_bytes);
  return (rows / granularity + 1) * granularity;
}

}  // namespace layercast
