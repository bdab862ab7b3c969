// What the CUDA kernel for magnitudes by column does, run on the host, against the slow scan.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "src/device/kernels/column_amax_body.cuh"
#include "src/tensor/kernels/axis_amax.h"
#include "tests/engine_side/quant/cuda/bodies/cuda_cases.h"
#include "tests/engine_side/quant/cuda/bodies/host_runner.h"

namespace layercast {
namespace {

constexpr KeptAxes kFirstAndLast = 0b101;

CudaFaultWord ColumnsOf(const Weight& weight, std::int64_t matrices, std::vector<float>& amax) {
  CudaFaultWord fault = kNoCudaFault;
  const MatrixView all = weight.view();
  const CudaMatrix first{all.dtype, all.data, all.rows / matrices, all.cols, all.row_stride, 0};
  cuda::RunColumnAmax(ElementsOnHost(), first, matrices, amax.data(), &fault);
  return fault;
}

TEST(ColumnAmaxBodies, FindTheMagnitudesOfTheHost) {
  WorkerPool pool(1);
  for (const DType dtype : kWeightTypes) {
    for (const std::int64_t matrices : {1, 3}) {
      for (const std::int64_t rows : {1, 64, 130}) {
        for (const std::int64_t cols : {2, 33}) {
          const Weight weight = MakeWeight("mixed", dtype, matrices * rows, cols);
          std::vector<float> amax(static_cast<std::size_t>(matrices * cols), 0.0F);
          EXPECT_EQ(ColumnsOf(weight, matrices, amax), kNoCudaFault);
          const TensorSpec spec{"w", dtype, {matrices, rows, cols}};
          EXPECT_EQ(amax, AmaxOver(spec, weight.view().data, kFirstAndLast, pool));
        }
      }
    }
  }
}

TEST(ColumnAmaxBodies, LeaveOutWhatIsNotFiniteAndReportTheFirst) {
  WorkerPool pool(1);
  Weight weight = MakeWeight("random", DType::kBF16, 200, 5);
  weight.SetBits(150, 2, 0x7f80);
  weight.SetBits(70, 4, 0xffc0);
  std::vector<float> amax(5, 0.0F);
  const CudaFaultWord word = ColumnsOf(weight, 1, amax);
  EXPECT_EQ(DecodeCudaFault(word).index, 70 * 5 + 4);
  EXPECT_EQ(amax, AmaxOver({"w", DType::kBF16, {1, 200, 5}}, weight.view().data, kFirstAndLast, pool));
}

}  // namespace
}  // namespace layercast
