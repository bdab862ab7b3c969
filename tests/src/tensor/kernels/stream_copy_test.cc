#include "src/tensor/kernels/stream_copy.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <random>
#include <vector>

namespace layercast {
namespace {

constexpr std::size_t kMany = 300'000;  // so many are written past the caches

class StreamCopyTest : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(StreamCopyTest, CopiesAnyNumberOfBytesBetweenAnyAddressesAndNothingElse) {
  std::vector<std::byte> from(kMany + 1000);
  std::mt19937 random(1);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kMany, kMany + 1, kMany + 255}) {
    for (const std::size_t offset : {0U, 1U, 16U, 63U}) {
      for (const std::size_t shift : {0U, 7U, 64U}) {
        std::vector<std::byte> to(from.size() + 200, std::byte{0x5C});
        std::vector<std::byte> expected = to;
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(shift), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(offset));
        StreamCopy(from.data() + shift, bytes, to.data() + offset);
        EXPECT_EQ(to, expected) << bytes << " bytes from " << shift << " to " << offset;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OnEveryTarget, StreamCopyTest, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& param) { return std::string(hwy::TargetName(param.param)); });

}  // namespace
}  // namespace layercast
