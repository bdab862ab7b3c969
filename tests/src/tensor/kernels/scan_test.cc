#include "src/tensor/kernels/scan.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "src/tensor/element.h"

namespace layercast {
namespace {

using std::int64_t;

struct Matrix {
  std::vector<std::byte> bytes;
  MatrixView view;
};

// Random bits, so every kind of value; rows are `gap` bytes apart, and the first begins at an odd address.
Matrix RandomBits(DType dtype, int64_t rows, int64_t cols, int64_t gap, unsigned seed) {
  const int64_t row_bytes = (cols * BitsPerElement(dtype) + 7) / 8;
  Matrix matrix;
  matrix.bytes.resize(static_cast<std::size_t>(1 + rows * (row_bytes + gap)));
  std::mt19937 random(seed);
  for (std::byte& byte : matrix.bytes) byte = static_cast<std::byte>(random());
  matrix.view = {dtype, matrix.bytes.data() + 1, rows, cols, row_bytes + gap};
  return matrix;
}

void Set(Matrix& matrix, int64_t row, int64_t col, std::uint64_t bits) {
  const auto size = static_cast<std::size_t>(BitsPerElement(matrix.view.dtype) / 8);
  std::byte* at = matrix.bytes.data() + 1 + row * matrix.view.row_stride + col * static_cast<int64_t>(size);
  std::memcpy(at, &bits, size);
}

// Replaces what is not finite by 1 or so: clears the highest exponent bit.
void MakeFinite(Matrix& matrix) {
  const MatrixView& view = matrix.view;
  const int width = BitsPerElement(view.dtype);
  for (int64_t r = 0; r < view.rows; ++r) {
    for (int64_t c = 0; c < view.cols; ++c) {
      const std::uint64_t bits = ElementBits(view.dtype, view.row(r), c);
      if (std::isfinite(DecodeElement(view.dtype, bits))) continue;
      const std::uint64_t finite = view.dtype == DType::kF8E8M0 ? 1 : bits ^ (std::uint64_t{1} << (width - 2));
      Set(matrix, r, c, view.dtype == DType::kF8E4M3FNUZ || view.dtype == DType::kF8E5M2FNUZ ? 1 : finite);
    }
  }
}

ScanResult SlowScan(const MatrixView& matrix) {
  ScanResult result;
  double amax = 0.0;
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.cols; ++c) {
      const double value = ElementValue(matrix.dtype, matrix.row(r), c);
      if (std::isfinite(value)) {
        amax = std::max(amax, std::fabs(value));
      } else if (result.first_non_finite < 0) {
        result.first_non_finite = r * matrix.cols + c;
      }
    }
  }
  result.amax = static_cast<float>(std::min(amax, static_cast<double>(std::numeric_limits<float>::max())));
  return result;
}

void ExpectLikeSlowScan(const MatrixView& matrix) {
  const ScanResult expected = SlowScan(matrix);
  std::vector<float> expected_rows;
  for (int64_t r = 0; r < matrix.rows; ++r) {
    expected_rows.push_back(SlowScan({matrix.dtype, matrix.row(r), 1, matrix.cols, matrix.row_stride}).amax);
  }
  for (const std::size_t threads : {1, 2}) {
    WorkerPool pool(threads);
    const ScanResult got = Scan(matrix, pool);
    EXPECT_EQ(got.amax, expected.amax) << Name(matrix.dtype) << ' ' << matrix.rows << 'x' << matrix.cols;
    EXPECT_EQ(got.first_non_finite, expected.first_non_finite) << Name(matrix.dtype);
    std::vector<float> rows(static_cast<std::size_t>(matrix.rows), -1.0F);
    ScanRows(matrix, pool, rows);
    EXPECT_EQ(rows, expected_rows) << Name(matrix.dtype);
  }
}

constexpr DType kFloats[] = {DType::kF4,     DType::kF6E2M3, DType::kF6E3M2,     DType::kF8E5M2,
                             DType::kF8E4M3, DType::kF8E8M0, DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ,
                             DType::kF16,    DType::kBF16,   DType::kF32,        DType::kF64};

TEST(Scan, EqualsTheSlowScanOfRandomBitsForEveryFloatingType) {
  for (const DType dtype : kFloats) {
    for (const int64_t cols : {4, 64, 132, 1000}) {
      for (const int64_t gap : {0, 7}) ExpectLikeSlowScan(RandomBits(dtype, 5, cols, gap, 1).view);
    }
  }
}

TEST(Scan, EqualsTheSlowScanOfFiniteValuesOnEveryInstructionSet) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3}) {
      for (const int64_t cols : {1, 63, 64, 65, 131, 2048}) {
        for (const int64_t gap : {0, 2, 8192}) {
          Matrix matrix = RandomBits(dtype, 9, cols, gap, static_cast<unsigned>(cols));
          MakeFinite(matrix);
          ExpectLikeSlowScan(matrix.view);
        }
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(Scan, FindsOneNanWhereverItIs) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64, DType::kF8E4M3}) {
    Matrix matrix = RandomBits(dtype, 3, 150, 3, 7);
    MakeFinite(matrix);
    WorkerPool pool(2);
    ASSERT_EQ(Scan(matrix.view, pool).first_non_finite, -1);
    for (int64_t col = 0; col < 150; col += 7) {
      Matrix bad = matrix;
      bad.view.data = bad.bytes.data() + 1;
      Set(bad, 2, col, std::numeric_limits<std::uint64_t>::max());  // all ones: NaN in each of these
      EXPECT_EQ(Scan(bad.view, pool).first_non_finite, 300 + col);
    }
  }
}

TEST(Scan, ALargeTensorIsCutIntoPiecesThatKeepTheirPlace) {
  for (const int64_t cols : {1000003, 300}) {
    const int64_t rows = cols == 300 ? 4000 : 1;
    std::vector<std::uint16_t> values(static_cast<std::size_t>(rows * cols), 0x3f80);  // 1.0
    const MatrixView matrix{DType::kBF16, reinterpret_cast<const std::byte*>(values.data()), rows, cols, cols * 2};
    WorkerPool pool(2);
    for (const std::size_t index : {std::size_t{0}, values.size() / 3, values.size() - 1}) {
      values[index] = 0xc040;  // -3.0
      EXPECT_EQ(Scan(matrix, pool).amax, 3.0F);
      EXPECT_EQ(Scan(matrix, pool).first_non_finite, -1);
      values[index] = 0xff80;  // -infinity
      EXPECT_EQ(Scan(matrix, pool).first_non_finite, static_cast<int64_t>(index));
      EXPECT_EQ(Scan(matrix, pool).amax, 1.0F);
      values[index] = 0x3f80;
    }
  }
}

TEST(Scan, EqualsTheSlowScanOfManyRowsWithGaps) {
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF8E4M3}) {
    for (const int64_t rows : {255, 256, 257, 700}) {
      Matrix matrix = RandomBits(dtype, rows, 6, 5, static_cast<unsigned>(rows));
      MakeFinite(matrix);
      ExpectLikeSlowScan(matrix.view);
    }
  }
}

TEST(Scan, IntegersAndEmptyTensorsHaveNothingToSay) {
  const std::vector<std::uint8_t> ones(64, 0xff);
  const auto* data = reinterpret_cast<const std::byte*>(ones.data());
  WorkerPool pool(1);
  for (const DType dtype : {DType::kBool, DType::kU8, DType::kI16, DType::kI64}) {
    EXPECT_EQ(Scan({dtype, data, 1, 8, 64}, pool).amax, 0.0F);
    EXPECT_EQ(Scan({dtype, data, 1, 8, 64}, pool).first_non_finite, -1);
  }
  EXPECT_EQ(Scan({DType::kBF16, data, 0, 8, 16}, pool).first_non_finite, -1);
  EXPECT_EQ(Scan({DType::kBF16, data, 8, 0, 0}, pool).first_non_finite, -1);
}

TEST(Scan, AComplexElementCountsByItsParts) {
  const float values[] = {1.0F, -5.0F, 2.0F, std::numeric_limits<float>::quiet_NaN()};
  WorkerPool pool(1);
  const auto* data = reinterpret_cast<const std::byte*>(values);
  EXPECT_EQ(Scan({DType::kC64, data, 1, 2, 16}, pool).amax, 5.0F);
  EXPECT_EQ(Scan({DType::kC64, data, 1, 2, 16}, pool).first_non_finite, 1);
  EXPECT_EQ(Scan({DType::kC64, data, 1, 1, 16}, pool).first_non_finite, -1);
}

TEST(Element, DecodesTheLandmarksOfEachFormat) {
  EXPECT_EQ(DecodeElement(DType::kF4, 0x7), 6.0);
  EXPECT_EQ(DecodeElement(DType::kF4, 0x9), -0.5);
  EXPECT_EQ(DecodeElement(DType::kF6E2M3, 0x1f), 7.5);
  EXPECT_EQ(DecodeElement(DType::kF6E3M2, 0x1f), 28.0);
  EXPECT_EQ(DecodeElement(DType::kF8E4M3, 0x7e), 448.0);
  EXPECT_EQ(DecodeElement(DType::kF8E4M3, 0x81), -std::ldexp(1.0, -9));
  EXPECT_TRUE(std::isnan(DecodeElement(DType::kF8E4M3, 0x7f)));
  EXPECT_EQ(DecodeElement(DType::kF8E5M2, 0x7b), 57344.0);
  EXPECT_TRUE(std::isinf(DecodeElement(DType::kF8E5M2, 0x7c)));
  EXPECT_EQ(DecodeElement(DType::kF8E4M3FNUZ, 0x7f), 240.0);
  EXPECT_TRUE(std::isnan(DecodeElement(DType::kF8E4M3FNUZ, 0x80)));
  EXPECT_EQ(DecodeElement(DType::kF8E5M2FNUZ, 0x7f), 57344.0);
  EXPECT_EQ(DecodeElement(DType::kF8E8M0, 0), std::ldexp(1.0, -127));
  EXPECT_TRUE(std::isnan(DecodeElement(DType::kF8E8M0, 0xff)));
  EXPECT_EQ(DecodeElement(DType::kF16, 0x7bff), 65504.0);
  EXPECT_EQ(DecodeElement(DType::kF16, 1), std::ldexp(1.0, -24));
  EXPECT_EQ(DecodeElement(DType::kBF16, 0x7f7f), std::ldexp(255.0, 120));
  EXPECT_EQ(DecodeElement(DType::kBF16, 0xc040), -3.0);
}

}  // namespace
}  // namespace layercast
