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
