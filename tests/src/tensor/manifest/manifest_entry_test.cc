#include "src/tensor/manifest/manifest_entry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "layercast/error.h"
#include "src/base/digest/digest.h"

namespace layercast {
namespace {

TensorView View(const std::vector<float>& values, Shape shape) {
  return {.dtype = DType::kF32,
          .shape = std::move(shape),
          .data = reinterpret_cast<const std::byte*>(values.data()),
          .device = {}};
}

TEST(ManifestEntry, KnowsDigestAndLargestMagnitude) {
  WorkerPool pool(1);
  const std::vector<float> values = {1, -5, 2, 3, 4, 0};
  const ManifestEntry entry = EntryOf("w", View(values, {2, 3}), pool);
  EXPECT_EQ(entry.amax, 5.0F);
  EXPECT_EQ(entry.digest, DigestOf(std::as_bytes(std::span(values))));
  EXPECT_EQ(EntryOf("empty", View({}, {0, 3}), pool).amax, 0.0F);
  EXPECT_EQ(EntryOf("scalar", View({-2}, {}), pool).amax, 2.0F);
}

// Larger than what one thread takes at a time.
TEST(ManifestEntry, OfALargeTensorIsOfAllItsShares) {
  WorkerPool pool(3);
  constexpr std::int64_t kRows = 700;
  constexpr std::int64_t kCols = 301;
  std::vector<float> values(kRows * kCols, 0.5F);
  for (const std::size_t largest : {std::size_t{0}, std::size_t{65'535}, std::size_t{65'536}, values.size() - 1}) {
    values[largest] = -7.0F;
    const ManifestEntry entry = EntryOf("w", View(values, {kRows, kCols}), pool);
    EXPECT_EQ(entry.amax, 7.0F) << largest;
    EXPECT_EQ(entry.digest, DigestOf(std::as_bytes(std::span(values)))) << largest;
    values[largest] = std::numeric_limits<float>::infinity();
    EXPECT_THAT([&] { EntryOf("w", View(values, {kRows, kCols}), pool); },
                ::testing::ThrowsMessage<Error>(::testing::HasSubstr("[" + std::to_string(largest / kCols) + ", " +
                                                                     std::to_string(largest % kCols) + "]")));
    values[largest] = 0.5F;
  }
}

TEST(ManifestEntry, RefusesNaNWithItsNameAndIndex) {
  WorkerPool pool(2);
  std::vector<float> values(24, 1.0F);
  values[17] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT([&] { EntryOf("model.norm.weight", View(values, {2, 3, 4}), pool); },
              ::testing::ThrowsMessage<Error>(
                  ::testing::AllOf(::testing::HasSubstr("model.norm.weight"), ::testing::HasSubstr("[1, 1, 1]"))));
}

TEST(ManifestEntry, RefusesWhatCannotBeRead) {
  WorkerPool pool(1);
  const std::vector<float> values(6, 1.0F);
  TensorView nowhere = View(values, {2, 3});
  nowhere.data = nullptr;
  EXPECT_THAT([&] { EntryOf("w", nowhere, pool); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("'w' ([2, 3] f32): expected the address")));
  TensorView elsewhere = View(values, {2, 3});
  elsewhere.device = {.kind = Device::Kind::kCuda, .index = 1};
  EXPECT_THAT([&] { EntryOf("w", elsewhere, pool); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("got CUDA device 1")));
}

}  // namespace
}  // namespace layercast
