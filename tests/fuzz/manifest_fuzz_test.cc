// Manifests: either refused, or canonical.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/manifest/manifest.h"
#include "tests/fuzz/fuzzing.h"

namespace layercast {
namespace {

using namespace std::string_view_literals;

std::string BytesOf(const Manifest& manifest) {
  const std::vector<std::byte> bytes = manifest.Encode();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string WholeForm() {
  const Manifest manifest("run", 7,
                          {{.spec = {"model.norm.weight", DType::kBF16, {8}}, .digest = {1, 2}, .amax = 1.5F},
                           {.spec = {"b", DType::kF32, {2, 3}}, .digest = {}, .amax = -1.0F},
                           {.spec = {"c", DType::kU8, {}}, .digest = {}, .amax = 0.0F}});
  return BytesOf(manifest);
}

std::string PartForm() {
  const ManifestEntry part{.spec = {"w", DType::kBF16, {2, 4}},
                           .digest = {1, 2},
                           .amax = 1.5F,
                           .part = TensorPart{.whole = {5, 4}, .offsets = {2, 0}}};
  const ManifestEntry whole{.spec = {"b", DType::kF32, {2}}, .digest = {}, .amax = -1.0F};
  return BytesOf({"run", 7, {part, whole}, {.rank = 1, .ranks = 3}});
}

// Whether the layout is known before makes no difference to what is accepted.
std::string OutcomeOf(std::span<const std::byte> bytes, std::shared_ptr<const ManifestLayout> known) {
  try {
    return BytesOf(Manifest::Decode(bytes, std::move(known)));
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ManifestFuzz, DamagedFormsAreRefusedOrCanonical) {
  for (const auto& [name, form] : {std::pair("manifest", WholeForm()), std::pair("manifest_part", PartForm())}) {
    const auto known = Manifest::Decode(std::as_bytes(std::span(form))).layout();
    const auto take = [&](const std::string& input) -> std::string {
      const std::vector<std::byte> bytes = ExactBytes(input);
      EXPECT_EQ(OutcomeOf(bytes, known), OutcomeOf(bytes, nullptr));
      try {
        EXPECT_EQ(Manifest::Decode(bytes).Encode(), bytes);
        return "";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
        return error.what();
      }
    };
    // Else nothing behind the magic was tried.
    EXPECT_GT(Fuzz({name, {form}, "\0\1\2\x0e\x40\x7f\x80\xbf\xff"sv, take}, 20'000).accepted, 50U);
  }
}

}  // namespace
}  // namespace layercast
