// Every form, size and density: frames say what the slow reference found, and lead to the new bytes.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <numeric>

#include "src/base/digest/digest.h"
#include "src/delta/delta_density.h"
#include "src/delta/delta_frame.h"
#include "src/delta/element_bits.h"
#include "tests/src/delta/slow_delta.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using test::Bytes;
using test::Drift;
using test::MakeVersions;
using test::SlowFrame;
using test::TwoVersions;
using testing::ErrorOf;

constexpr DeltaEffort kEfforts[] = {DeltaEffort::kFast, DeltaEffort::kSmall, DeltaEffort::kSmallest};

// What the frame says, by the reference, and what it makes in place and into other bytes.
void ExpectLeads(const Bytes& frame, const TwoVersions& versions, std::size_t element_bytes) {
  SlowFrame slow(frame);
  ASSERT_EQ(slow.elements, versions.next.size() / element_bytes);
  if (slow.form == 1) {
    ASSERT_EQ(slow.ReadDense(), versions.next);
  } else {
    ASSERT_EQ(slow.Read(versions.base), test::SlowChanges(versions.base, versions.next, element_bytes));
  }
  Bytes in_place = versions.base;
  ApplyDelta(frame, in_place);
  ASSERT_EQ(in_place, versions.next);
  Bytes elsewhere(versions.base.size());
  ApplyDeltaInto(frame, {.bytes = versions.base}, elsewhere);
  ASSERT_EQ(elsewhere, versions.next);
}

std::vector<Drift> Drifts() {
  std::vector<Drift> drifts;
  for (const std::size_t element_bytes : {1U, 2U, 4U}) {
    for (const std::size_t elements : {0U, 1U, 2U, 63U, 64U, 65U, 127U, 1000U, 20011U}) {
      for (const double density : {0.0, 0.0003, 0.01, 0.1, 0.3, 1.0}) {
        for (const auto kind : {Drift::Kind::kRandomBits, Drift::Kind::kSmallSteps}) {
          drifts.push_back({element_bytes, elements, density, kind});
        }
      }
      drifts.push_back({element_bytes, elements, 0.02, Drift::Kind::kSmallFirst});
      drifts.push_back({element_bytes, elements, 0.0, Drift::Kind::kCluster});
    }
  }
  drifts.push_back({2, 1'100'003, 0.01, Drift::Kind::kSmallFirst});  // more than one block of a stream
  drifts.push_back({2, 1'100'003, 0.9, Drift::Kind::kSmallSteps});
  return drifts;
}

TEST(DeltaCodec, FramesSayWhatTheReferenceFindsAndLeadThere) {
  std::vector<int> seen(6);
  for (const Drift& drift : Drifts()) {
    const TwoVersions versions = MakeVersions(drift, 17);
    for (const DeltaEffort effort : kEfforts) {
      const Bytes frame = EncodeDelta({.bytes = versions.base}, {.bytes = versions.next}, drift.element_bytes, effort);
      ++seen[static_cast<std::size_t>(ReadDeltaHeader(frame).form)];
      ASSERT_NO_FATAL_FAILURE(ExpectLeads(frame, versions, drift.element_bytes))
          << drift.elements << " elements of " << drift.element_bytes << " bytes, density " << drift.density
          << ", kind " << static_cast<int>(drift.kind) << ", effort " << static_cast<int>(effort);
    }
  }
  for (std::size_t form = 0; form < seen.size(); ++form) {
    EXPECT_GT(seen[form], 0) << NameOf(static_cast<DeltaForm>(form));  // each form was the smallest somewhere
  }
}

TEST(DeltaCodec, DenseFramesNeedNoBase) {
  const TwoVersions versions = MakeVersions({2, 5000, 1.0, Drift::Kind::kSmallSteps}, 3);
  for (const DeltaEffort effort : kEfforts) {
    const Bytes frame = EncodeDense({.bytes = versions.next}, 2, effort);
    Bytes anything(versions.next.size(), std::byte{0x5a});
    ApplyDelta(frame, anything);
    EXPECT_EQ(anything, versions.next);
    Bytes into(versions.next.size());
    ApplyDeltaInto(frame, {.bytes = {}}, into);
    EXPECT_EQ(into, versions.next);
  }
}

TEST(DeltaCodec, MoreEffortIsNeverLarger) {
  for (const double density : {0.001, 0.01, 0.05, 0.3, 0.9}) {
    const TwoVersions versions = MakeVersions({2, 100'000, density, Drift::Kind::kSmallFirst}, 5);
    std::size_t before = versions.next.size() + 200;
    for (const DeltaEffort effort : kEfforts) {
      const std::size_t size = EncodeDelta({.bytes = versions.base}, {.bytes = versions.next}, 2, effort).size();
      EXPECT_LE(size, before);
      before = size;
    }
  }
}

TEST(DeltaCodec, AnotherBaseIsRefusedBeforeAByteIsWritten) {
  for (const double density : {0.01, 0.5}) {
    const TwoVersions versions = MakeVersions({2, 3000, density, Drift::Kind::kSmallSteps}, 7);
    for (const DeltaEffort effort : kEfforts) {
      const Bytes frame = EncodeDelta({.bytes = versions.base}, {.bytes = versions.next}, 2, effort);
      Bytes other = versions.base;
      other[1234] ^= std::byte{1};
      const Bytes before = other;
      EXPECT_THAT(ErrorOf([&] { ApplyDelta(frame, other); }, ErrorCode::kFailedPrecondition),
                  ::testing::HasSubstr("expected a base of digest " + DigestOf(versions.base).ToHex()));
      EXPECT_EQ(other, before);
      Bytes into(other.size());
      EXPECT_NE(ErrorOf([&] { ApplyDeltaInto(frame, {.bytes = other}, into); }), "no error");
    }
  }
}

TEST(DeltaCodec, ADigestThatIsKnownIsNotComputedAgain) {
  const TwoVersions versions = MakeVersions({2, 3000, 0.01, Drift::Kind::kSmallSteps}, 7);
  const Digest base = DigestOf(versions.base);
  const Bytes frame =
      EncodeDelta({versions.base, base}, {versions.next, DigestOf(versions.next)}, 2, DeltaEffort::kFast);
  EXPECT_EQ(frame, EncodeDelta({.bytes = versions.base}, {.bytes = versions.next}, 2, DeltaEffort::kFast));
  Bytes into(versions.base.size());
  ApplyDeltaInto(frame, {versions.base, base}, into);
  EXPECT_EQ(into, versions.next);
  ErrorOf([&] { ApplyDeltaInto(frame, {versions.base, DigestOf(versions.next)}, into); },
          ErrorCode::kFailedPrecondition);
}

TEST(DeltaCodec, ArgumentsThatCannotWorkAreNamed) {
  const Bytes six(6);
  const Bytes eight(8);
  EXPECT_THAT(ErrorOf([&] { EncodeDelta({.bytes = six}, {.bytes = eight}, 2, DeltaEffort::kFast); }),
              ::testing::HasSubstr("expected a base of 8 bytes, got 6"));
  EXPECT_THAT(ErrorOf([&] { EncodeDelta({.bytes = six}, {.bytes = six}, 4, DeltaEffort::kFast); }),
              ::testing::HasSubstr("got 6 bytes in elements of 4"));
  EXPECT_THAT(ErrorOf([&] { EncodeDense({.bytes = six}, 3, DeltaEffort::kFast); }),
              ::testing::HasSubstr("got 6 bytes in elements of 3"));
  Bytes target(6);
  EXPECT_THAT(ErrorOf([&] { ApplyDelta(EncodeDense({.bytes = eight}, 2, DeltaEffort::kFast), target); }),
              ::testing::HasSubstr("expected 8 bytes to apply it to, got 6"));
}

// The slow way to the same bits.
TEST(ElementBits, EveryInstructionSetFindsTheSame) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (const std::size_t element_bytes : {1U, 2U, 4U}) {
      for (const std::size_t elements : {1U, 63U, 64U, 200U, 1027U}) {
        const TwoVersions versions = MakeVersions({element_bytes, elements, 0.3, Drift::Kind::kRandomBits}, 11);
        const std::uint64_t half = std::uint64_t{1} << (8 * element_bytes - 1);
        const auto threshold = static_cast<std::uint32_t>(half / 3);
        std::vector<std::uint64_t> changed(NumWords(elements), ~std::uint64_t{0});
        std::vector<std::uint64_t> small = changed;
        const std::size_t count = ChangedBits(versions.base, versions.next, element_bytes, changed);
        SmallBits(versions.base, element_bytes, threshold, small);
        std::vector<std::uint64_t> slow_changed(NumWords(elements));
        std::vector<std::uint64_t> slow_small(NumWords(elements));
        for (std::size_t i = 0; i < elements; ++i) {
          const std::uint64_t base = test::SlowElement(versions.base, i, element_bytes);
          if (base != test::SlowElement(versions.next, i, element_bytes))
            slow_changed[i / 64] |= std::uint64_t{1} << i % 64;
          if (base % half < threshold) slow_small[i / 64] |= std::uint64_t{1} << i % 64;
        }
        ASSERT_EQ(changed, slow_changed) << hwy::TargetName(target);
        ASSERT_EQ(small, slow_small) << hwy::TargetName(target);
        ASSERT_EQ(count, test::SlowChanges(versions.base, versions.next, element_bytes).size());
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(DeltaDensity, TheMeterCountsBlockByBlock) {
  const TwoVersions versions = MakeVersions({2, 10'000, 0.01, Drift::Kind::kRandomBits}, 13);
  const test::Changes changes = test::SlowChanges(versions.base, versions.next, 2);
  DensityMeter meter(2);
  std::size_t sum = 0;
  for (std::size_t at = 0; at < versions.base.size(); at += 1400) {
    const std::size_t count = std::min<std::size_t>(1400, versions.base.size() - at);
    sum += meter.Add(std::span(versions.base).subspan(at, count), std::span(versions.next).subspan(at, count));
  }
  EXPECT_EQ(sum, changes.size());
  EXPECT_EQ(meter.count().changed, changes.size());
  EXPECT_EQ(meter.count().elements, 10'000U);
  EXPECT_EQ(meter.count().first, changes.begin()->first);
  EXPECT_EQ(meter.count().end, changes.rbegin()->first + 1);
}

TEST(DeltaDensity, EstimatesAreNearWhatFramesTake) {
  for (const double density : {0.0005, 0.003, 0.01, 0.1, 0.5}) {
    const TwoVersions versions = MakeVersions({2, 400'000, density, Drift::Kind::kSmallSteps}, 19);
    DensityMeter meter(2);
    meter.Add(versions.base, versions.next);
    for (const DeltaEffort effort : {DeltaEffort::kFast, DeltaEffort::kSmall}) {
      const auto size =
          static_cast<double>(EncodeDelta({.bytes = versions.base}, {.bytes = versions.next}, 2, effort).size());
      const double estimate = EstimateDelta(meter.count(), 2, effort).least();
      EXPECT_NEAR(size / estimate, 1.0, 0.25) << density << ", effort " << static_cast<int>(effort);
    }
  }
}

}  // namespace
}  // namespace layercast
