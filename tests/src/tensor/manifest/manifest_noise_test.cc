// The noise of a version in the manifest's form (MANIFEST.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

template <typename Call>
std::string RefusalOf(ErrorCode code, const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

Manifest OfOneNorm() {
  return {"run-17", 42, {{.spec = {"model.norm.weight", DType::kBF16, {8}}, .digest = {1, 2}, .amax = 1.5F}}};
}

TEST(ManifestNoise, NoiseIsBehindTheLabelAndInNoDigest) {
  const Noise noise{.sigma = 0.0078125F, .seed = 0x0102030405060708};
  const Manifest clean = OfOneNorm();
  const Manifest noisy = clean.With(noise);
  EXPECT_EQ(noisy.version(), clean.version());
  EXPECT_EQ(noisy.layout_digest(), clean.layout_digest());
  const std::vector<std::byte> form = noisy.Encode();
  std::vector<std::byte> expected = clean.Encode();
  for (const int byte : {0x00, 0x00, 0x00, 0x3C, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01}) {
    expected.push_back(static_cast<std::byte>(byte));
  }
  EXPECT_EQ(form, expected);
  EXPECT_EQ(Manifest::Decode(form).noise(), noise);
  EXPECT_FALSE(Manifest::Decode(clean.Encode()).noise());
  EXPECT_EQ(noisy.With(std::nullopt).Encode(), clean.Encode());
  for (std::size_t cut = clean.Encode().size() + 1; cut < form.size(); ++cut) {
    const std::vector<std::byte> some(form.begin(), form.begin() + static_cast<std::ptrdiff_t>(cut));
    EXPECT_NE(RefusalOf(ErrorCode::kCorrupt, [&] { Manifest::Decode(some); }), "no error");
  }
}

TEST(ManifestNoise, NoiseThatIsNoneIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float sigma : {0.0F, -0.5F, nan, infinity}) {
    EXPECT_THAT(
        RefusalOf(ErrorCode::kInvalidArgument, [&] { static_cast<void>(OfOneNorm().With(Noise{.sigma = sigma})); }),
        HasSubstr("expected a finite sigma above 0"));
  }
  EXPECT_THAT(
      RefusalOf(ErrorCode::kInvalidArgument, [] { static_cast<void>(OfOneNorm().With(Noise{.sigma = 1, .own = 1})); }),
      HasSubstr("none of an engine's own"));
  std::vector<std::byte> form = OfOneNorm().With(Noise{.sigma = 1}).Encode();
  form[form.size() - 9] = std::byte{0xBF};  // -1
  EXPECT_THAT(RefusalOf(ErrorCode::kCorrupt, [&] { Manifest::Decode(form); }),
              HasSubstr("finite sigma above 0, got -1"));
}

}  // namespace
}  // namespace layercast
