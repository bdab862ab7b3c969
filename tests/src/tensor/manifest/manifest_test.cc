#include "src/tensor/manifest/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "tests/support/hex.h"

namespace layercast {
namespace {

ManifestEntry Entry(std::string name, DType dtype, Shape shape, float amax = -1.0F) {
  return {.spec = {.name = std::move(name), .dtype = dtype, .shape = std::move(shape)}, .digest = {}, .amax = amax};
}

std::vector<ManifestEntry> EntriesOf(const Manifest& manifest) {
  const auto entries = manifest.entries();
  return {entries.begin(), entries.end()};
}

std::vector<ManifestEntry> SmallEntries() {
  std::vector<ManifestEntry> entries = {Entry("model.norm.weight", DType::kBF16, {8}, 1.5F),
                                        Entry("a\u00e9", DType::kF4, {3, 2}, 6.0F), Entry("scalar", DType::kF32, {}),
                                        Entry("empty", DType::kI64, {4, 0}, 0.0F)};
  entries[0].digest = {.high = 0x0123456789abcdef, .low = 42};
  return entries;
}

Manifest Small() { return {"run-17", 42, SmallEntries()}; }

// Decoding refuses, or gives something whose form is these very bytes. True: refused.
bool Refused(const std::vector<std::byte>& bytes) {
  try {
    EXPECT_EQ(Manifest::Decode(bytes).Encode(), bytes);
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    return true;
  }
}

template <typename F>
std::string MessageOf(ErrorCode code, F&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "no error";
}

TEST(Manifest, ComesBackAsItWentIn) {
  const Manifest manifest = Small();
  const Manifest decoded = Manifest::Decode(manifest.Encode());
  EXPECT_EQ(EntriesOf(decoded), SmallEntries());
  EXPECT_EQ(decoded.version(), manifest.version());
  EXPECT_EQ(decoded.layout_digest(), manifest.layout_digest());
  EXPECT_EQ(decoded.total_bytes(), 8U * 2 + 3 + 4 + 0);
  EXPECT_EQ(decoded.Encode(), manifest.Encode());
}

// Rank 1 of 3: a part of one tensor, all of another.
std::vector<ManifestEntry> PartEntries() {
  std::vector<ManifestEntry> entries = {Entry("w", DType::kBF16, {2, 4}, 1.0F), Entry("norm", DType::kF32, {4}, 2.0F)};
  entries[0].part = TensorPart{.whole = {5, 4}, .offsets = {2, 0}};
  return entries;
}

Manifest SmallPart() { return {"run-17", 42, PartEntries(), {.rank = 1, .ranks = 3}}; }

TEST(Manifest, APartComesBackAsItWentIn) {
  const Manifest manifest = SmallPart();
  const Manifest decoded = Manifest::Decode(manifest.Encode());
  EXPECT_EQ(EntriesOf(decoded), PartEntries());
  EXPECT_EQ(decoded.part(), (VersionPart{.rank = 1, .ranks = 3}));
  EXPECT_EQ(decoded.version(), manifest.version());
  EXPECT_EQ(decoded.layout_digest(), manifest.layout_digest());
  EXPECT_EQ(decoded.total_bytes(), 2U * 4 * 2 + 4 * 4);
}

TEST(Manifest, TheFormOfAPartIsTheOneThatIsSpecified) {
  std::vector<unsigned> expected = {'L', 'C', 'M', 'A', 'N', 'I', 'F', 0, 2, 0, 0, 0, 1, 0, 0, 0};
  const auto put_u64 = [&](unsigned value) {
    expected.push_back(value);
    expected.resize(expected.size() + 7);
  };
  for (const unsigned byte : {1, 0, int{'w'}, 14, 2}) expected.push_back(byte);
  for (const unsigned dim : {2U, 4U}) put_u64(dim);
  expected.push_back(1);
  for (const unsigned dim : {5U, 4U, 2U, 0U}) put_u64(dim);
  expected.resize(expected.size() + 16);
  for (const unsigned byte : {0U, 0U, 0x80U, 0x3FU}) expected.push_back(byte);
  for (const unsigned byte : {1, 0, int{'r'}, 3, 0, 0, 0, 0, 0, 0, 0}) expected.push_back(byte);
  for (const unsigned byte : {1, 0, 0, 0, 3, 0, 0, 0}) expected.push_back(byte);
  std::vector<std::byte> bytes;
  for (const unsigned byte : expected) bytes.push_back(static_cast<std::byte>(byte));
  EXPECT_EQ(Manifest("r", 3, {PartEntries()[0]}, {.rank = 1, .ranks = 3}).Encode(), bytes);
}

TEST(Manifest, APartThatIsAllOfItsTensorIsNone) {
  ManifestEntry entry = Entry("w", DType::kBF16, {2, 4});
  entry.part = TensorPart{.whole = {2, 4}, .offsets = {0, 0}};
  EXPECT_FALSE(Manifest("r", 3, {entry}).entry(0).part);
}

TEST(Manifest, PartsThatAreNoneAreRefusedByName) {
  const auto message = [](TensorPart part, VersionPart of = {.rank = 0, .ranks = 2}) {
    return MessageOf(ErrorCode::kInvalidArgument, [&] {
      ManifestEntry entry = Entry("w", DType::kBF16, {2, 4});
      entry.part = std::move(part);
      Manifest("", 0, {entry}, of);
    });
  };
  EXPECT_EQ(message({.whole = {3, 4}, .offsets = {2, 0}}),
            "manifest: tensor 0 'w': a part [2, 4] at [2, 0] leaves its tensor [3, 4]");
  EXPECT_THAT(message({.whole = {3, 4}, .offsets = {-1, 0}}), testing::HasSubstr("leaves its tensor"));
  EXPECT_THAT(message({.whole = {9, 3}, .offsets = {0, 0}}), testing::HasSubstr("leaves its tensor"));
  EXPECT_THAT(message({.whole = {9, 4, 1}, .offsets = {0, 0}}), testing::HasSubstr("as many dimensions"));
  EXPECT_THAT(message({.whole = {1LL << 62, 4}, .offsets = {0, 0}}), testing::HasSubstr("2^63"));
  EXPECT_EQ(message({.whole = {3, 4}, .offsets = {1, 0}}, {}),
            "manifest: tensor 0 'w': is [1:3, 0:4] of [3, 4], and its publisher says that it is the only one");
  for (const VersionPart of : {VersionPart{2, 2}, VersionPart{-1, 2}, VersionPart{0, 0}}) {
    EXPECT_THAT(message({.whole = {3, 4}, .offsets = {1, 0}}, of), testing::HasSubstr("rank below their number"));
  }
}

TEST(Manifest, FindsByName) {
  const Manifest copy = [] {
    const Manifest original = Small();
    return original;
  }();
  EXPECT_EQ(copy.Find("model.norm.weight"), 0);
  EXPECT_EQ(copy.Find("empty"), 3);
  EXPECT_EQ(copy.Find("model.norm"), -1);
  EXPECT_EQ(copy.Find(""), -1);
}

TEST(Manifest, AnEmptyOneIsAManifestLikeAnyOther) {
  const Manifest empty;
  EXPECT_EQ(empty.version(), Manifest("", 0, {}).version());
  EXPECT_TRUE(empty.version().digest);
  EXPECT_EQ(Manifest::Decode(empty.Encode()).version(), empty.version());
  EXPECT_EQ(empty.Find("x"), -1);
}

TEST(Manifest, TheFormIsTheOneThatIsSpecified) {
  const Manifest manifest("r", 3, {Entry("w", DType::kBF16, {5}, 1.0F)});
  std::vector<unsigned> expected = {'L', 'C', 'M', 'A', 'N', 'I', 'F', 0, 1, 0, 0, 0, 1, 0, 0, 0};
  for (const unsigned byte : {1, 0, int{'w'}, 14, 1, 5, 0, 0, 0, 0, 0, 0, 0}) expected.push_back(byte);
  const std::size_t layout_end = expected.size();
  expected.resize(expected.size() + 16);
  for (const unsigned byte : {0U, 0U, 0x80U, 0x3FU}) expected.push_back(byte);
  const std::size_t values_end = expected.size();
  for (const unsigned byte : {1, 0, int{'r'}, 3, 0, 0, 0, 0, 0, 0, 0}) expected.push_back(byte);

  std::vector<std::byte> bytes;
  for (const unsigned byte : expected) bytes.push_back(static_cast<std::byte>(byte));
  EXPECT_EQ(manifest.Encode(), bytes);
  EXPECT_EQ(manifest.layout_digest(), DigestOf(std::span(bytes).first(layout_end)));
  EXPECT_EQ(manifest.version().digest, DigestOf(std::span(bytes).first(values_end)));
}

TEST(Manifest, HasItsExactBytesAndDigests) {
  EXPECT_EQ(test::Hex(Small().Encode()),
            "4c434d414e494600010000000400000011006d6f64656c2e6e6f726d2e7765696768740e010800000000000000030061c3a9010203"
            "00000000000000020000000000000006007363616c617211000500656d707479140204000000000000000000000000000000efcdab"
            "89674523012a000000000000000000c03f000000000000000000000000000000000000c04000000000000000000000000000000000"
            "000080bf0000000000000000000000000000000000000000060072756e2d31372a00000000000000");
  EXPECT_EQ(Small().version().digest.ToHex(), "a99cf44dbe9e2cfd208fa7b51ab8646c");
  EXPECT_EQ(Small().layout_digest().ToHex(), "95a7608d46e42727b3b0052b83e4cd79");
  EXPECT_EQ(test::Hex(SmallPart().Encode()),
            "4c434d414e49460002000000020000000100770e020200000000000000040000000000000001050000000000000004000000000000"
            "000200000000000000000000000000000004006e6f726d110104000000000000000000000000000000000000000000000000000080"
            "3f0000000000000000000000000000000000000040060072756e2d31372a000000000000000100000003000000");
  EXPECT_EQ(SmallPart().version().digest.ToHex(), "24adba7901c19468a290782cd60355d7");
  EXPECT_EQ(SmallPart().layout_digest().ToHex(), "df721d29a6ecee9d15c8b0f6004665c8");
}

TEST(Manifest, TheDigestsSpeakOfLayoutAndOfWeightsButNotOfTheLabel) {
  const Manifest manifest = Small();
  EXPECT_EQ(Manifest("other", 7, SmallEntries()).version().digest, manifest.version().digest);
  std::vector<ManifestEntry> other_bytes = SmallEntries();
  other_bytes[2].digest.low = 1;
  EXPECT_NE(Manifest("run-17", 42, other_bytes).version().digest, manifest.version().digest);
  EXPECT_EQ(Manifest("run-17", 42, other_bytes).layout_digest(), manifest.layout_digest());
  std::vector<ManifestEntry> other_shape = SmallEntries();
  other_shape[0].spec.shape = {2, 4};
  EXPECT_NE(Manifest("run-17", 42, other_shape).layout_digest(), manifest.layout_digest());
  std::vector<ManifestEntry> other_order = SmallEntries();
  std::swap(other_order[0], other_order[1]);
  EXPECT_NE(Manifest("run-17", 42, other_order).layout_digest(), manifest.layout_digest());
}

TEST(Manifest, TheSameWeightsHaveTheSameDigestInWhateverOrderTheyAreListed) {
  std::vector<ManifestEntry> entries = SmallEntries();
  std::ranges::sort(entries, {}, [](const ManifestEntry& entry) { return entry.spec.name; });
  const Manifest sorted("run-17", 42, entries);
  // By name, the form is what the digest is of: all but the label.
  const std::vector<std::byte> form = sorted.Encode();
  const std::size_t label = 2 + std::string_view("run-17").size() + 8;
  EXPECT_EQ(sorted.version().digest, DigestOf(std::span(form).first(form.size() - label)));
  do {
    EXPECT_EQ(Manifest("run-17", 42, entries).version(), sorted.version());
  } while (std::ranges::next_permutation(entries, {}, [](const ManifestEntry& e) { return e.spec.name; }).found);
  // What belongs to a name stays with it.
  std::swap(entries[0].amax, entries[1].amax);
  EXPECT_NE(Manifest("run-17", 42, entries).version(), sorted.version());
}

TEST(Manifest, SharesALayoutThatIsKnown) {
  const Manifest first = Small();
  std::vector<ManifestEntry> entries = SmallEntries();
  entries.front().amax = 77;
  entries.front().digest = {9, 9};
  const Manifest next("run", 8, entries, {}, first.layout());
  EXPECT_EQ(next.layout(), first.layout());
  EXPECT_EQ(next.version(), Manifest("run", 8, entries).version());
  EXPECT_EQ(next.Encode(), Manifest("run", 8, entries).Encode());

  const Manifest decoded = Manifest::Decode(next.Encode(), first.layout());
  EXPECT_EQ(decoded.layout(), first.layout());
  EXPECT_EQ(EntriesOf(decoded), entries);
  EXPECT_EQ(decoded.version(), next.version());
}

TEST(Manifest, ReadsALayoutThatIsAnotherThanTheKnownOne) {
  const Manifest known = Small();
  std::vector<ManifestEntry> longer = SmallEntries();
  longer.push_back(Entry("another", DType::kU8, {3}));
  std::vector<ManifestEntry> other_shape = SmallEntries();
  other_shape.front().spec.shape = {9};
  for (const auto& entries : {longer, other_shape}) {
    const Manifest made("run", 8, entries, {}, known.layout());
    EXPECT_NE(made.layout(), known.layout());
    const Manifest decoded = Manifest::Decode(made.Encode(), known.layout());
    EXPECT_EQ(EntriesOf(decoded), entries);
    EXPECT_EQ(decoded.layout_digest(), made.layout_digest());
  }
  EXPECT_EQ(Manifest::OfSpecs("run", 8, known.specs(), known.layout()).layout(), known.layout());
}

TEST(Manifest, EveryTruncationIsRefused) {
  for (const Manifest& manifest : {Small(), SmallPart()}) {
    const std::vector<std::byte> bytes = manifest.Encode();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      // A copy of the exact size, so that the address sanitizer sees a read past it.
      EXPECT_TRUE(Refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)})) << size;
    }
  }
}

TEST(Manifest, ATrailingByteIsRefused) {
  std::vector<std::byte> bytes = Small().Encode();
  bytes.push_back(std::byte{0});
  EXPECT_TRUE(Refused(bytes));
}

TEST(Manifest, AFlippedBitIsRefusedOrAnotherCanonicalManifest) {
  for (const Manifest& manifest : {Small(), SmallPart()}) {
    const std::vector<std::byte> bytes = manifest.Encode();
    std::size_t refused = 0;
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::vector<std::byte> flipped = bytes;
      flipped[bit / 8] ^= std::byte{1} << (bit % 8);
      refused += Refused(flipped) ? 1U : 0U;
    }
    EXPECT_GE(refused, 16U * 8);  // every bit of the header at least
  }
}

TEST(Manifest, LyingCountsAreRefusedBeforeTheyAllocate) {
  for (const std::size_t at : {12U /* count */, 16U /* a name's length */}) {
    std::vector<std::byte> bytes = Small().Encode();
    bytes[at] = bytes[at + 1] = std::byte{0xFF};
    EXPECT_TRUE(Refused(bytes));
    if (at == 12) bytes[at + 2] = bytes[at + 3] = std::byte{0xFF};
    EXPECT_TRUE(Refused(bytes));
  }
}

TEST(Manifest, ARepeatedNameIsRefusedByNameAndPlace) {
  std::vector<ManifestEntry> entries = SmallEntries();
  entries[3].spec.name = entries[0].spec.name;
  EXPECT_EQ(MessageOf(ErrorCode::kInvalidArgument, [&] { Manifest("", 0, entries); }),
            "manifest: tensors 0 and 3 have the same name 'model.norm.weight'");
}

// Rows 2 of 6 of 'a', from row `first` on.
ManifestEntry RowsFrom(std::int64_t first, std::int64_t whole = 6, DType dtype = DType::kF32) {
  ManifestEntry entry = Entry("a", dtype, {2});
  entry.part = TensorPart{.whole = {whole}, .offsets = {first}};
  return entry;
}

TEST(Manifest, OnePublisherMayHoldSeveralPartsOfATensor) {
  const VersionPart part{0, 2};
  const Manifest manifest("run", 1, {RowsFrom(4), Entry("b", DType::kF32, {}), RowsFrom(0)}, part);
  EXPECT_EQ(Manifest::Decode(manifest.Encode()).Encode(), manifest.Encode());
  EXPECT_EQ(manifest.Find("a", TensorPart{.whole = {6}, .offsets = {4}}), 0);
  EXPECT_EQ(manifest.Find("a", TensorPart{.whole = {6}, .offsets = {0}}), 2);
  EXPECT_EQ(manifest.Find("a", TensorPart{.whole = {6}, .offsets = {2}}), -1);
  EXPECT_EQ(manifest.Find("b", std::nullopt), 1);
  const Manifest sorted("run", 1, {RowsFrom(0), RowsFrom(4), Entry("b", DType::kF32, {})}, part);
  EXPECT_EQ(manifest.version(), sorted.version());
  EXPECT_NE(manifest.layout_digest(), sorted.layout_digest());
}

TEST(Manifest, PartsOfATensorThatContradictEachOtherAreRefused) {
  const auto message = [](ManifestEntry one, ManifestEntry other) {
    return MessageOf(ErrorCode::kInvalidArgument,
                     [&] { Manifest("", 0, {std::move(one), std::move(other)}, VersionPart{0, 2}); });
  };
  EXPECT_EQ(message(RowsFrom(2), RowsFrom(2)),
            "manifest: tensors 0 and 1 have the same name 'a' and begin at the same [2]");
  EXPECT_EQ(message(RowsFrom(2), Entry("a", DType::kF32, {2})), "manifest: tensors 1 and 0 have the same name 'a'");
  EXPECT_EQ(message(RowsFrom(0), RowsFrom(2, 8)),
            "manifest: tensors 0 and 1 are parts of 'a': expected the same whole, got [6] f32 and [8] f32");
  EXPECT_EQ(message(RowsFrom(0), RowsFrom(2, 6, DType::kBF16)),
            "manifest: tensors 0 and 1 are parts of 'a': expected the same whole, got [6] f32 and [6] bf16");
}

TEST(Manifest, WhatTheFormCannotHoldIsRefused) {
  const auto message = [](ManifestEntry entry) {
    return MessageOf(ErrorCode::kInvalidArgument, [&] { Manifest("", 0, {std::move(entry)}); });
  };
  EXPECT_THAT(message(Entry("", DType::kF32, {})), testing::HasSubstr("name: expected 1 to 4096 bytes, got 0"));
  EXPECT_THAT(message(Entry(std::string(5000, 'x'), DType::kF32, {})), testing::HasSubstr("got 5000"));
  EXPECT_THAT(message(Entry(std::string("a\0b", 3), DType::kF32, {})),
              testing::HasSubstr("'a\\x00b': name: holds a NUL"));
  EXPECT_THAT(message(Entry("a\xff", DType::kF32, {})), testing::HasSubstr("is not UTF-8 at byte 1"));
  EXPECT_THAT(message(Entry("w", DType::kF32, Shape(65, 1))), testing::HasSubstr("got 65"));
  EXPECT_THAT(message(Entry("w", DType::kF32, {-1})), testing::HasSubstr("negative"));
  EXPECT_THAT(message(Entry("w", DType::kF32, {1LL << 40, 1LL << 40})), testing::HasSubstr("2^63"));
  EXPECT_THAT(message(Entry("w", DType::kF4, {3})), testing::HasSubstr("whole bytes"));
  EXPECT_THAT(message(Entry("w", DType::kF32, {1}, std::numeric_limits<float>::quiet_NaN())),
              testing::HasSubstr("amax is not finite"));
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [] { Manifest(std::string(2000, 'x'), 0, {}); }),
              testing::HasSubstr("lineage"));
}

TEST(Manifest, TensorsThatTogetherExceedEverythingAreRefused) {
  std::vector<ManifestEntry> entries;
  for (int i = 0; i < 32; ++i) entries.push_back(Entry(std::to_string(i), DType::kU8, {1LL << 59}));
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [&] { Manifest("", 0, entries); }), testing::HasSubstr("exceed"));
}

TEST(Manifest, ANegativeAmaxIsUnknownAndZeroHasOneForm) {
  const Manifest manifest("", 0, {Entry("a", DType::kF32, {}, -3.0F), Entry("b", DType::kF32, {}, -0.0F)});
  EXPECT_EQ(manifest.entry(0).amax, -1.0F);
  EXPECT_FALSE(std::signbit(manifest.entry(1).amax));
}

TEST(Manifest, SixtyThousandTensorsGoThereAndBack) {
  std::vector<ManifestEntry> entries;
  for (int i = 0; i < 60000; ++i) {
    entries.push_back(
        Entry("model.layers." + std::to_string(i % 60) + ".mlp.experts." + std::to_string(i / 60) + ".down_proj.weight",
              DType::kBF16, {2048, 768}, 0.5F));
  }
  const Manifest manifest("run", 1, std::move(entries));
  const Manifest decoded = Manifest::Decode(manifest.Encode());
  EXPECT_EQ(decoded.version(), manifest.version());
  EXPECT_EQ(decoded.Find("model.layers.59.mlp.experts.999.down_proj.weight"), 59999);
}

}  // namespace
}  // namespace layercast
