// Manifests: either refused, or canonical.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/manifest.h"
#include "tests/fuzz/damage.h"

namespace layercast {
namespace {

using namespace std::string_view_literals;

std::string Form() {
  const Manifest manifest("run", 7,
                          {{.spec = {"model.norm.weight", DType::kBF16, {8}}, .digest = {1, 2}, .amax = 1.5F},
                           {.spec = {"b", DType::kF32, {2, 3}}, .digest = {}, .amax = -1.0F},
                           {.spec = {"c", DType::kU8, {}}, .digest = {}, .amax = 0.0F}});
  const std::vector<std::byte> bytes = manifest.Encode();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(ManifestFuzz, DamagedFormsAreRefusedOrCanonical) {
  Damage damage(5, "\0\1\2\x0e\x40\x7f\x80\xbf\xff"sv);
  const std::string form = Form();
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string damaged = damage.Apply(form);
    const auto* first = reinterpret_cast<const std::byte*>(damaged.data());
    const std::vector<std::byte> bytes(first, first + damaged.size());
    try {
      ASSERT_EQ(Manifest::Decode(bytes).Encode(), bytes) << "round " << round;
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kCorrupt) << "round " << round << ": " << error.what();
    }
  }
  EXPECT_GT(accepted, 100);  // else nothing behind the magic was tried
}

}  // namespace
}  // namespace layercast
