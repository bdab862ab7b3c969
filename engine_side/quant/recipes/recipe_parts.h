// What recipes have in common: their checks, and how a weight is cut into jobs. Used by the recipes' files.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "layercast/error.h"
#include "src/base/rounding.h"

namespace layercast {

// What a value that is not finite is called in messages: "NaN", "infinity" or "-infinity".
std::string NonFiniteName(double value);

// A value that no weight may have, and where the weight has it. Whoever knows the weight's sources says which of them
// has it. Value.
class NonFiniteWeight : public Error {
 public:
  NonFiniteWeight(double value, std::int64_t row, std::int64_t col);

  double value() const { return value_; }
  std::int64_t row() const { return row_; }
  std::int64_t col() const { return col_; }

 private:
  double value_;
  std::int64_t row_, col_;
};

// Throws kInvalidArgument unless a recipe can take such a weight: its dtype is bf16, f16 or f32, and no size is
// negative.
void CheckSource(std::string_view recipe, DType dtype, std::int64_t rows, std::int64_t cols);

// Throws kInvalidArgument unless this rank's columns are whole blocks of `block`.
void CheckWholeBlocks(std::string_view recipe, std::int64_t cols, std::int64_t block);

// The output's memory as numbers of type T, from row `row` on. A row has `row_elements` elements.
template <class T>
T* OutputRow(const KernelTensorView& output, std::int64_t row, std::int64_t row_elements) {
  return reinterpret_cast<T*>(output.data) + row * row_elements;
}

// Checks that `piece` lies inside the weight whose kernel tensors are `outputs`, that these are `count`, that the first
// has rows of `code_cols` elements, and that the piece begins and ends where the recipe's row_granularity allows. A
// failure is a bug (LAYERCAST_CHECK).
void CheckPiece(const Recipe& recipe, const MatrixView& piece, std::int64_t first_row,
                std::span<const KernelTensorView> outputs, std::size_t count, std::int64_t code_cols);

// The largest magnitude of a weight of `rows` rows: the one in `amax` or, if the piece is the whole weight, the
// piece's. Throws kInvalidArgument if there is neither, and kCorrupt if it is NaN or infinite.
float TensorAmax(const Recipe& recipe, const MatrixView& piece, const AmaxInput& amax, std::int64_t rows,
                 WorkerPool& pool);

// Throws kCorrupt, naming the first place in the piece where something is wrong: NaN or infinity, or a magnitude above
// the one that `amax` has for the tensor or the row. Returns if nothing is wrong.
void CheckValues(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax, WorkerPool& pool);

// Throws what CheckValues throws. To be called if a kernel has seen that something is wrong.
[[noreturn]] void ThrowWrongValue(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                                  WorkerPool& pool);

// Rows [first, first + count) of a matrix.
MatrixView RowsOf(const MatrixView& matrix, std::int64_t first, std::int64_t count);

// How many rows a band has: a multiple of `granularity`, so that there are a few bands for each thread, none too small.
std::int64_t RowsOfABand(const MatrixView& matrix, std::int64_t granularity, const WorkerPool& pool);

// Calls body(first row, number of rows) for bands of rows that begin at multiples of `granularity`; the last one may be
// smaller. Returns true if every call did.
template <typename Body>
bool ForBands(const MatrixView& matrix, std::int64_t granularity, WorkerPool& pool, const Body& body) {
  const std::int64_t band = RowsOfABand(matrix, granularity, pool);
  std::atomic<bool> good = true;
  pool.For(static_cast<std::size_t>(CeilDivide(matrix.rows, band)), [&](std::size_t job) {
    const std::int64_t first = static_cast<std::int64_t>(job) * band;
    if (!body(first, std::min(band, matrix.rows - first))) good = false;
  });
  return good;
}

}  // namespace layercast
