// Frames that are not as they were made: every bit, and what lies behind a frame digest that was made to hold. A target
// is as it was whenever one is refused.
#include <gtest/gtest.h>

#include "src/base/digest/digest.h"
#include "src/delta/delta_frame.h"
#include "tests/src/delta/slow_delta.h"
#include "tests/support/error_of.h"
#include "tests/support/hex.h"

namespace layercast {
namespace {

using test::Bytes;
using test::Drift;
using test::Hex;
using test::MakeVersions;
using test::TwoVersions;
using testing::ErrorOf;

constexpr std::size_t kResultAt = 48;
constexpr std::size_t kDigestAt = 64;
constexpr std::size_t kBodyAt = 80;

// One frame of each form.
struct Sample {
  TwoVersions versions;
  Bytes frame;
  std::size_t element_bytes = 2;
};

Sample MakeSample(const Drift& drift, DeltaEffort effort) {
  Sample sample{.versions = MakeVersions(drift, 43), .frame = {}, .element_bytes = drift.element_bytes};
  sample.frame =
      EncodeDelta({.bytes = sample.versions.base}, {.bytes = sample.versions.next}, drift.element_bytes, effort);
  return sample;
}

std::vector<Sample> Samples() {
  using Kind = Drift::Kind;
  std::vector<Sample> samples;
  for (const DeltaEffort effort : {DeltaEffort::kFast, DeltaEffort::kSmall}) {
    samples.push_back(MakeSample({2, 300, 0.0, Kind::kSmallSteps}, effort));
    samples.push_back(MakeSample({2, 200, 1.0, Kind::kRandomBits}, effort));
    samples.push_back(MakeSample({4, 100, 1.0, Kind::kSmallSteps}, effort));
    samples.push_back(MakeSample({2, 600, 0.0, Kind::kCluster}, effort));
    samples.push_back(MakeSample({2, 3000, 0.02, Kind::kRandomBits}, effort));
    samples.push_back(MakeSample({2, 100'000, 0.0005, Kind::kRandomBits}, effort));  // gaps of two bytes
    samples.push_back(MakeSample({1, 400, 0.3, Kind::kSmallSteps}, effort));
  }
  samples.push_back(MakeSample({2, 6000, 0.01, Kind::kSmallFirst}, DeltaEffort::kSmallest));
  return samples;
}

void Reseal(Bytes& frame) {
  if (frame.size() < kBodyAt) return;
  Digester digester;
  digester.Update(std::span(frame).first(kDigestAt));
  digester.Update(std::span(frame).subspan(kBodyAt));
  const Digest digest = digester.Finish();
  std::memcpy(&frame[kDigestAt], &digest.high, 8);
  std::memcpy(&frame[kDigestAt + 8], &digest.low, 8);
}

// Refused, and nothing is changed; or it leads to the right bytes after all. Returns whether it was refused.
bool RefusedOrRight(const Sample& sample, const Bytes& frame, Bytes& target) {
  try {
    ApplyDelta(frame, target);
  } catch (const Error& error) {
    EXPECT_NE(error.code(), ErrorCode::kInternal) << error.what();
    EXPECT_EQ(target, sample.versions.base);
    return true;
  }
  EXPECT_EQ(target, sample.versions.next);
  target = sample.versions.base;
  return false;
}

TEST(DeltaHostile, EveryBitThatIsFlippedIsFound) {
  for (const Sample& sample : Samples()) {
    Bytes target = sample.versions.base;
    Bytes frame = sample.frame;
    for (std::size_t bit = 0; bit < 8 * std::min<std::size_t>(frame.size(), 1200); ++bit) {
      frame[bit / 8] ^= std::byte{1} << bit % 8;
      ASSERT_TRUE(RefusedOrRight(sample, frame, target)) << "bit " << bit;
      frame[bit / 8] ^= std::byte{1} << bit % 8;
    }
    ASSERT_FALSE(RefusedOrRight(sample, frame, target));
  }
}

TEST(DeltaHostile, EveryLengthButTheRightOneIsRefused) {
  for (const Sample& sample : Samples()) {
    Bytes target = sample.versions.base;
    for (std::size_t size = 0; size < sample.frame.size(); ++size) {
      Bytes frame(sample.frame.begin(), sample.frame.begin() + static_cast<std::ptrdiff_t>(size));
      ASSERT_TRUE(RefusedOrRight(sample, frame, target)) << size;
      Reseal(frame);
      ASSERT_TRUE(RefusedOrRight(sample, frame, target)) << size;
    }
    Bytes longer = sample.frame;
    longer.push_back(std::byte{0});
    Reseal(longer);
    ASSERT_TRUE(RefusedOrRight(sample, longer, target));
  }
}

// A hundred thousand, whose frame digest holds, so that what lies behind it is met.
TEST(DeltaHostile, DamageBehindAFrameDigestThatHoldsWritesNothing) {
  std::mt19937 random(47);
  const std::vector<Sample> samples = Samples();
  constexpr int kRounds = 100'000;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Sample& sample = samples[random() % samples.size()];
    if (sample.versions.base.size() > 20'000 && random() % 16 != 0) continue;  // which takes the most time
    Bytes target = sample.versions.base;
    Bytes frame = sample.frame;
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % 3 == 0 ? random() % kBodyAt : random() % frame.size();
      switch (random() % 4) {
        case 0: frame[at] ^= std::byte{1} << random() % 8; break;
        case 1: frame[at] = static_cast<std::byte>(random() % 2 == 0 ? 255 : 0); break;
        case 2: frame[at] = static_cast<std::byte>(random()); break;
        default: std::swap(frame[at], frame[random() % frame.size()]); break;
      }
    }
    Reseal(frame);
    refused += RefusedOrRight(sample, frame, target) ? 1 : 0;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "round " << round;
    Bytes into(target.size());
    try {
      ApplyDeltaInto(frame, {.bytes = sample.versions.base}, into);
      ASSERT_EQ(into, sample.versions.next);
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
    try {
      FoldDeltas(sample.frame, frame, DeltaEffort::kFast);
    } catch (const Error& error) {
      ASSERT_NE(error.code(), ErrorCode::kInternal) << error.what();
    }
  }
  EXPECT_GT(refused, kRounds / 4);
}

TEST(DeltaHostile, StepsThatLeadElsewhereAreTakenBack) {
  for (const Sample& sample : Samples()) {
    Bytes frame = sample.frame;
    frame[kResultAt] ^= std::byte{1};
    Reseal(frame);
    Bytes target = sample.versions.base;
    const std::string error = ErrorOf([&] { ApplyDelta(frame, target); }, ErrorCode::kCorrupt);
    EXPECT_THAT(error, ::testing::AnyOf(::testing::HasSubstr("expected a result of digest"),
                                        ::testing::HasSubstr("nothing changed, but the digest")));
    EXPECT_EQ(target, sample.versions.base);
  }
}

// bf16: 1.0 to its neighbour above; 2^-126 down by one; -0 to 0 is one place.
TEST(DeltaHostile, GoldenBytes) {
  const auto bytes_of = [](const std::vector<std::uint16_t>& elements) {
    const auto raw = std::as_bytes(std::span(elements));
    return Bytes(raw.begin(), raw.end());
  };
  std::vector<std::uint16_t> base(300, 0x3f80);
  base[7] = 0x0080;
  base[8] = 0x8000;
  std::vector<std::uint16_t> next = base;
  next[2] = 0x3f81;
  next[7] = 0x007f;
  next[8] = 0x0000;
  next[299] = 0xffc1;
  const Bytes frame = EncodeDelta({.bytes = bytes_of(base)}, {.bytes = bytes_of(next)}, 2, DeltaEffort::kFast);
  const std::string hex = Hex(frame);
  EXPECT_EQ(hex.substr(0, 64),
            "4c434446"
            "01"
            "02"
            "03"
            "00"
            "2c01000000000000"
            "0400000000000000"
            "0000000000000000");
  EXPECT_EQ(hex.substr(2 * kBodyAt),
            "01"  // gaps of a byte
            "00"
            "0500000000000000"
            "0500000000000000"
            "020400ff23"  // 2, 4, 0, 255 + 35
            "00"
            "0000000000000000"
            "0000000000000000"  // no low bytes
            "00"
            "0400000000000000"
            "0400000000000000"
            "020102ff"  // +1, -1, +1, wide
            "00"
            "0200000000000000"
            "0200000000000000"
            "7c81");
}

}  // namespace
}  // namespace layercast
