#include "src/tensor/kernels/axis_amax.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Tensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
};

// Random bits, so some are infinite or NaN.
Tensor RandomBits(DType dtype, Shape shape) {
  Tensor tensor{{"t", dtype, std::move(shape)}, {}};
  tensor.bytes.resize(static_cast<std::size_t>(tensor.spec.num_bytes()));
  std::mt19937 random(7);
  for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random());
  return tensor;
}

// Element by element, wherever its kept indices say.
std::vector<float> Slowly(const Tensor& tensor, KeptAxes kept) {
  const Shape& shape = tensor.spec.shape;
  std::vector<float> amax(static_cast<std::size_t>(NumKept(shape, kept)), 0.0F);
  for (std::int64_t i = 0; i < tensor.spec.num_elements(); ++i) {
    std::int64_t rest = i, at = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      if ((kept >> d & 1) == 0) continue;
      at += rest % shape[d] * stride;
      stride *= shape[d];
    }
    const double value = std::abs(ElementValue(tensor.spec.dtype, tensor.bytes.data(), i));
    float& max = amax[static_cast<std::size_t>(at)];
    if (std::isfinite(value)) max = std::max(max, static_cast<float>(value));
  }
  return amax;
}

TEST(AxisAmax, IsThatOfEveryElementOverTheOtherAxes) {
  WorkerPool pool(2);
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Tensor matrix = RandomBits(dtype, {5, 37});
    const Tensor stack = RandomBits(dtype, {3, 4, 37});
    EXPECT_EQ(AmaxOver(matrix.spec, matrix.bytes.data(), 0b01, pool), Slowly(matrix, 0b01));
    EXPECT_EQ(AmaxOver(matrix.spec, matrix.bytes.data(), 0b10, pool), Slowly(matrix, 0b10));
    for (const KeptAxes kept : std::initializer_list<KeptAxes>{0b000, 0b001, 0b011, 0b100, 0b101}) {
      EXPECT_EQ(AmaxOver(stack.spec, stack.bytes.data(), kept, pool), Slowly(stack, kept)) << int{kept};
    }
  }
}

TEST(AxisAmax, OfEmptyTensorsIsEmptyOrZero) {
  WorkerPool pool(1);
  EXPECT_TRUE(AmaxOver({"t", DType::kF32, {0, 3}}, nullptr, 0b01, pool).empty());
  EXPECT_EQ(AmaxOver({"t", DType::kF32, {2, 0}}, nullptr, 0b01, pool), (std::vector<float>{0.0F, 0.0F}));
}

TEST(AxisAmax, RefusesAxesThatMakeNoSense) {
  const auto refused = [](const Shape& shape, KeptAxes kept) {
    EXPECT_THAT([&] { CheckKept(shape, kept); }, ThrowsMessage<Error>(HasSubstr("expected its first dimensions")))
        << int{kept};
  };
  refused({}, 0b1);
  refused({4}, 0b1);             // all of them: the tensor itself
  refused({4, 5}, 0b11);         //
  refused({4, 5}, 0b100);        // one that it does not have
  refused({4, 5, 6}, 0b010);     // one in the middle
  refused({4, 5, 6}, 0b110);     //
  refused({4, 5, 6, 7}, 0b101);  // neither the first ones nor the last
  refused({4, 5}, 0xFF);
  refused(Shape(40, 1), 0x80);
  CheckKept(Shape(40, 1), 0xFF);
  CheckKept({4, 5, 6}, 0b101);
}

}  // namespace
}  // namespace layercast
