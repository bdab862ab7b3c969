#include "engine_side/reload/work/checked_dequantize.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "engine_side/reload/work/wrong_values.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/utf8.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

// Computes the products again, as they were before they were rounded to `dtype`.
[[noreturn]] void ThrowFirstBeyond(const std::string& tensor, std::int64_t matrix, std::int64_t matrices,
                                   const QuantizedWeight& weight, DType dtype, WorkerPool& pool) {
  std::vector<float> products(static_cast<std::size_t>(weight.rows * weight.cols));
  Dequantize(weight, DType::kF32, reinterpret_cast<std::byte*>(products.data()), pool);
  for (std::size_t i = 0; i < products.size(); ++i) {
    if (std::isfinite(RoundTo(dtype, products[i]))) continue;
    const Shape one = {weight.rows, weight.cols};
    const std::int64_t element = matrix * weight.rows * weight.cols + static_cast<std::int64_t>(i);
    const std::string place = PlaceIn(matrices == 1 ? one : Shape{matrices, weight.rows, weight.cols}, element);
    throw Error(ErrorCode::kCorrupt, Quote(tensor) + ": " + WrongValueWords(products[i], "dequantized", dtype, place));
  }
  LAYERCAST_CHECK(false && "a product was not finite, and all are");
  std::abort();  // not reached
}

}  // namespace

void DequantizeChecked(const std::string& tensor, std::int64_t matrix, std::int64_t matrices,
                       const QuantizedWeight& weight, DType dtype, std::byte* values, WorkerPool& pool) {
  if (!Dequantize(weight, dtype, values, pool)) ThrowFirstBeyond(tensor, matrix, matrices, weight, dtype, pool);
}

}  // namespace layercast
