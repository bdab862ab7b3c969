#include "engine_side/reload/work/checked_dequantize.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/support/error_of.h"

namespace layercast {
namespace {

constexpr std::uint8_t kOne = 0x38, kLargest = 0x7E, kNan = 0x7F;  // 1, 448

TEST(CheckedDequantize, RefusesWhatTheModelsDtypeCannotHold) {
  WorkerPool pool(2);
  std::vector<std::uint8_t> codes(6, kOne);
  std::vector<std::uint16_t> values(6);
  const auto error = [&](float scale, std::int64_t matrix, std::int64_t matrices) {
    const QuantizedWeight weight{
        .codes = codes.data(), .rows = 2, .cols = 3, .scales = {scale}, .block_rows = 2, .block_cols = 3};
    return testing::ErrorOf(
        [&] {
          DequantizeChecked("a.codes", matrix, matrices, weight, DType::kF16,
                            reinterpret_cast<std::byte*>(values.data()), pool);
        },
        ErrorCode::kCorrupt);
  };
  DequantizeChecked("a.codes", 0, 1, {codes.data(), 2, 3, {100}, 2, 3}, DType::kF16,
                    reinterpret_cast<std::byte*>(values.data()), pool);
  codes[4] = kLargest;
  EXPECT_EQ(error(200, 0, 1),
            "'a.codes': row 1, column 1 holds 89600 (dequantized), which is beyond 65504, the largest finite f16");
  EXPECT_EQ(
      error(-200, 3, 4),
      "'a.codes': matrix 3, row 1, column 1 holds -89600 (dequantized), which is beyond -65504, the largest finite "
      "f16");
  codes[4] = kNan;
  EXPECT_EQ(error(1, 0, 1), "'a.codes': expected finite values, got NaN at row 1, column 1");
}

}  // namespace
}  // namespace layercast
