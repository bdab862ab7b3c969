#include "layercast/dtype.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

TEST(DType, EverySafetensorsNameComesBack) {
  for (const DType dtype : AllDTypes()) EXPECT_EQ(DTypeFromSafetensors(SafetensorsName(dtype)), dtype);
  EXPECT_EQ(AllDTypes().size(), 22U);
  EXPECT_EQ(DTypeFromSafetensors("BF17"), std::nullopt);
}

TEST(DType, TakesEverySpellingOfTorch) {
  EXPECT_EQ(DTypeFromTorch("bfloat16"), DType::kBF16);
  EXPECT_EQ(DTypeFromTorch("torch.bfloat16"), DType::kBF16);
  EXPECT_EQ(DTypeFromTorch("half"), DType::kF16);
  EXPECT_EQ(DTypeFromTorch("float8_e4m3fn"), DType::kF8E4M3);
  EXPECT_EQ(DTypeFromTorch(""), std::nullopt);
}

}  // namespace
}  // namespace layercast
