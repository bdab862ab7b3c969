// Publishers' manifests put together, and what is refused of them.
#include "src/tensor/parts/merged_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::ErrorOf;
using ::testing::HasSubstr;

const std::vector<std::string> kEndpoints = {"tcp://a", "tcp://b", "tcp://c"};

ManifestEntry Whole(const std::string& name, Shape shape, float amax = 1) {
  return {.spec = {name, DType::kBF16, std::move(shape)}, .digest = {1, 2}, .amax = amax};
}

ManifestEntry Part(const std::string& name, const Shape& whole, Shape offsets, Shape shape, float amax = 1) {
  ManifestEntry entry = Whole(name, std::move(shape), amax);
  entry.part = TensorPart{.whole = whole, .offsets = std::move(offsets)};
  return entry;
}

std::vector<Manifest> Published(const std::vector<std::vector<ManifestEntry>>& ranks) {
  std::vector<Manifest> manifests;
  const int count = static_cast<int>(ranks.size());
  for (int rank = 0; rank < count; ++rank) {
    manifests.emplace_back("run", 3, ranks[static_cast<std::size_t>(rank)], VersionPart{rank, count});
  }
  return manifests;
}

std::string MergeError(const std::vector<std::vector<ManifestEntry>>& ranks) {
  return ErrorOf([&] { Merge(Published(ranks), kEndpoints); });
}

TEST(Merge, OneWholeVersionIsItself) {
  const std::vector<Manifest> whole = {Manifest("run", 3, {Whole("w", {4, 2})})};
  const MergedVersion merged = Merge(whole, kEndpoints);
  EXPECT_EQ(merged.manifest.version(), whole.front().version());
  EXPECT_TRUE(merged.parts.empty());
}

TEST(Merge, PublishersThatSayOtherNoiseAreRefused) {
  std::vector<Manifest> manifests = Published({{Whole("a", {2})}, {Whole("b", {2})}});
  const Noise noise{.sigma = 0.01F, .seed = 3};
  manifests[0] = manifests[0].With(noise);
  EXPECT_THAT(ErrorOf([&] { Merge(manifests, kEndpoints); }), HasSubstr("has other noise for it"));
  manifests[1] = manifests[1].With(noise);
  EXPECT_EQ(Merge(manifests, kEndpoints).manifest.noise(), noise);
}

TEST(Merge, PutsPartsTogetherUnderTheWholeTensorsNamesAndShapes) {
  const MergedVersion merged = Merge(Published({{Part("w", {5, 2}, {0, 0}, {3, 2}, 2), Whole("norm", {2})},
                                                {Part("w", {5, 2}, {3, 0}, {2, 2}, 7), Whole("head", {2, 2})}}),
                                     kEndpoints);
  EXPECT_THAT(merged.manifest.specs(),
              ElementsAre(TensorSpec{"w", DType::kBF16, {5, 2}}, TensorSpec{"norm", DType::kBF16, {2}},
                          TensorSpec{"head", DType::kBF16, {2, 2}}));
  EXPECT_EQ(merged.manifest.entry(0).amax, 7);
  EXPECT_TRUE(merged.manifest.entry(0).digest);
  EXPECT_EQ(merged.manifest.version().step, 3U);
  const Shape w = {5, 2};
  ASSERT_EQ(merged.parts.size(), 3U);
  EXPECT_THAT(merged.parts[0], ElementsAre(HeldPart{0, Box::Slice(w, 0, 0, 3)}, HeldPart{2, Box::Slice(w, 0, 3, 2)}));
  EXPECT_THAT(merged.parts[1], ElementsAre(HeldPart{1, Box::Whole({2})}));
  EXPECT_THAT(merged.parts[2], ElementsAre(HeldPart{3, Box::Whole({2, 2})}));
}

TEST(Merge, NamesTheVersionByItsPartsBytesWhicheverRankHasThem) {
  const ManifestEntry first = Part("w", {4, 2}, {0, 0}, {2, 2});
  const ManifestEntry second = Part("w", {4, 2}, {2, 0}, {2, 2});
  const auto digest = [](const std::vector<std::vector<ManifestEntry>>& ranks) {
    return Merge(Published(ranks), kEndpoints).manifest.version().digest;
  };
  EXPECT_EQ(digest({{first}, {second}}), digest({{second}, {first}}));
  ManifestEntry other = second;
  other.digest.low = 9;
  EXPECT_NE(digest({{first}, {second}}), digest({{first}, {other}}));
}

TEST(Merge, EmptyPartsFillNothing) {
  const Shape whole = {2, 3};
  const MergedVersion merged = Merge(Published({{Part("w", whole, {0, 0}, {1, 3})},
                                                {Part("w", whole, {1, 0}, {1, 3})},
                                                {Part("w", whole, {2, 0}, {0, 3}), Whole("none", {0, 3})}}),
                                     kEndpoints);
  EXPECT_THAT(merged.parts[0],
              ElementsAre(HeldPart{0, Box::Slice(whole, 0, 0, 1)}, HeldPart{1, Box::Slice(whole, 0, 1, 1)}));
  EXPECT_THAT(merged.parts[1], ElementsAre(HeldPart{3, Box::Whole({0, 3})}));
}

// Whoever has no use for such a tensor takes the version all the same.
TEST(Merge, TensorsOfMoreAxesThanABoxHasAreCutAlongTheFirst) {
  const Shape whole = {6, 2, 2, 2, 5, 3};
  const Shape joined = {6, 2, 2, 2, 15};
  const MergedVersion rows = Merge(Published({{Part("conv", whole, {0, 0, 0, 0, 0, 0}, {4, 2, 2, 2, 5, 3})},
                                              {Part("conv", whole, {4, 0, 0, 0, 0, 0}, {2, 2, 2, 2, 5, 3})}}),
                                   kEndpoints);
  EXPECT_EQ(rows.manifest.entry(0).spec.shape, whole);
  EXPECT_THAT(rows.parts[0],
              ElementsAre(HeldPart{0, Box::Slice(joined, 0, 0, 4)}, HeldPart{1, Box::Slice(joined, 0, 4, 2)}));
  const MergedVersion fifth = Merge(Published({{Part("conv", whole, {0, 0, 0, 0, 0, 0}, {6, 2, 2, 2, 3, 3})},
                                               {Part("conv", whole, {0, 0, 0, 0, 3, 0}, {6, 2, 2, 2, 2, 3})}}),
                                    kEndpoints);
  EXPECT_THAT(fifth.parts[0],
              ElementsAre(HeldPart{0, Box::Slice(joined, 4, 0, 9)}, HeldPart{1, Box::Slice(joined, 4, 9, 6)}));
  EXPECT_THAT(Merge(Published({{Whole("conv", whole)}, {Whole("w", {2})}}), kEndpoints).parts[0],
              ElementsAre(HeldPart{0, Box::Whole(joined)}));
  EXPECT_THAT(MergeError({{Part("conv", whole, {0, 0, 0, 0, 0, 0}, {4, 2, 2, 2, 5, 3})}, {}}),
              HasSubstr("'conv' ([6, 2, 2, 2, 5, 3] bf16) in parts: no publisher has [4:6, 0:2, 0:2, 0:2, 0:15]"));
  EXPECT_EQ(
      MergeError({{Part("conv", whole, {0, 0, 0, 0, 0, 0}, {6, 2, 2, 2, 5, 2})},
                  {Part("conv", whole, {0, 0, 0, 0, 0, 2}, {6, 2, 2, 2, 5, 1})}}),
      "'conv' ([6, 2, 2, 2, 5, 3] bf16) in parts: publisher tcp://a has [6, 2, 2, 2, 5, 2] of it: expected a part that "
      "is cut along the first 5 axes, got one along axis 5");
}

TEST(Merge, AHoleNamesTheTensorTheRangeAndTheHoldersBesideIt) {
  EXPECT_EQ(MergeError({{Part("w", {8, 4}, {0, 0}, {3, 4})}, {Part("w", {8, 4}, {5, 0}, {3, 4})}}),
            "'w' ([8, 4] bf16) in parts: no publisher has [3:5, 0:4]; beside it publisher tcp://a has [0:3, 0:4], "
            "publisher tcp://b has [5:8, 0:4]");
  EXPECT_THAT(MergeError({{Part("w", {8, 4}, {0, 0}, {8, 2})}, {}}),
              HasSubstr("no publisher has [0:8, 2:4]; beside it publisher tcp://a has [0:8, 0:2]"));
  // Two corners of four: as many elements may be there as the rest lacks.
  EXPECT_THAT(MergeError({{Part("w", {4, 4}, {0, 0}, {2, 2})}, {Part("w", {4, 4}, {2, 2}, {2, 2})}}),
              HasSubstr("no publisher has [0:2, 2:4]"));
}

TEST(Merge, AnOverlapNamesBothHoldersWithTheirBoxes) {
  EXPECT_EQ(MergeError({{Part("w", {8, 4}, {0, 0}, {5, 4})}, {Part("w", {8, 4}, {4, 0}, {4, 4})}}),
            "'w' ([8, 4] bf16) in parts: publisher tcp://a has [0:5, 0:4] and publisher tcp://b has [4:8, 0:4]: "
            "expected every element of one of them");
  EXPECT_THAT(MergeError({{Whole("norm", {4})}, {}, {Whole("norm", {4})}}),
              AllOf(HasSubstr("publisher tcp://a has [0:4]"), HasSubstr("publisher tcp://c has [0:4]")));
  // As many elements as the tensor, and still not it.
  EXPECT_THAT(MergeError({{Part("w", {4}, {0}, {2})}, {Part("w", {4}, {1}, {2})}}), HasSubstr("[0:2] and"));
}

TEST(Merge, PublishersThatDisagreeAboutATensorAreNamed) {
  ManifestEntry other = Part("w", {8, 4}, {4, 0}, {4, 4});
  other.spec.dtype = DType::kF32;
  EXPECT_EQ(MergeError({{Part("w", {8, 4}, {0, 0}, {4, 4})}, {other}}),
            "'w' ([8, 4] bf16) in parts: publisher tcp://a has [0:4, 0:4] of it, and publisher tcp://b a part of "
            "[8, 4] f32");
  EXPECT_THAT(MergeError({{Part("w", {8, 4}, {0, 0}, {4, 4})}, {Part("w", {9, 4}, {4, 0}, {5, 4})}}),
              HasSubstr("a part of [9, 4] bf16"));
}

}  // namespace
}  // namespace layercast
