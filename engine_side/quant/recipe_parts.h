// What recipes share: their checks, and how a weight is cut into jobs.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "src/base/rounding.h"

namespace layercast {

// One per recipe, in the file of its name.
std::unique_ptr<const Recipe> MakeNone();
std::unique_ptr<const Recipe> MakeFp8PerTensor();
std::unique_ptr<const Recipe> MakeFp8PerChannel();
std::unique_ptr<const Recipe> MakeFp8PerBlock(bool power_of_two_scales);
std::unique_ptr<const Recipe> MakeMxfp8();
std::unique_ptr<const Recipe> MakeMxfp4();
std::unique_ptr<const Recipe> MakeNvfp4();
std::unique_ptr<const Recipe> MakeInt8PerChannel();

// Throws kInvalidArgument unless the recipe can take such a weight: bf16, f16 or f32, nothing negative.
void CheckSource(std::string_view recipe, DType dtype, std::int64_t rows, std::int64_t cols);

// Throws kInvalidArgument unless this rank's columns are whole blocks of so many.
void CheckWholeBlocks(std::string_view recipe, std::int64_t cols, std::int64_t block);

// The outputs' memory as numbers of type T, from row `row` of `row_elements` elements on.
template <class T>
T* OutputRow(const KernelTensorView& output, std::int64_t row, std::int64_t row_elements) {
  return reinterpret_cast<T*>(output.data) + row * row_elements;
}

// Checks (LAYERCAST_CHECK: the caller is ours) that `piece` lies inside the weight whose kernel tensors are
// `outputs`, as many as `count`, the first with rows of `code_cols` elements; and that it begins and ends where the
// recipe's row_granularity allows.
void CheckPiece(const Recipe& recipe, const MatrixView& piece, std::int64_t first_row,
                std::span<const KernelTensorView> outputs, std::size_t count, std::int64_t code_cols);

// The largest magnitude of a weight of `rows` rows: the one given, or else that of the piece, if it is all of the
// weight. Throws kInvalidArgument where neither is there, kCorrupt where it is no number.
float TensorAmax(const Recipe& recipe, const MatrixView& piece, const AmaxInput& amax, std::int64_t rows,
                 WorkerPool& pool);

// Throws kCorrupt, naming what is wrong in the first place of the piece where something is: NaN or infinity, or a
// magnitude above the one given for the tensor or the row. Returns if nothing is.
void CheckValues(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax, WorkerPool& pool);

// The same where a kernel has seen that something is wrong.
[[noreturn]] void ThrowWrongValue(const MatrixView& piece, std::int64_t first_row, const AmaxInput& amax,
                                  WorkerPool& pool);

// Rows [first, first + count) of a matrix.
MatrixView RowsOf(const MatrixView& matrix, std::int64_t first, std::int64_t count);

// A multiple of `granularity`; a few bands per thread, and none of them too small.
std::int64_t RowsOfABand(const MatrixView& matrix, std::int64_t granularity, const WorkerPool& pool);

// Calls body(first row, rows) for bands of so many rows (the last one may have fewer). True if every body returned
// true.
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
