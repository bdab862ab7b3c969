#include "src/session/deltas/delta_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"

namespace layercast {
namespace {

using ::testing::ThrowsMessage;

constexpr std::uint64_t kBytes = 1'000'000'000;

DeltaTerms Over(double gb_per_s, bool attaches = false) {
  return {.use = DeltaUse::kAuto, .dense_bytes = kBytes, .channel = "zmq", .gb_per_s = gb_per_s, .attaches = attaches};
}

TEST(DeltaTerms, OnASlowLinkNearlyAnyDeltaIsWorthIt) {
  EXPECT_GT(Over(0.125).most_bytes(), kBytes * 9 / 10);
  EXPECT_LT(Over(0.125).most_bytes(), kBytes);
}

TEST(DeltaTerms, OnALinkAsFastAsDeltasAreAppliedNoneIs) {
  EXPECT_EQ(Over(20).most_bytes(), 0U);
  EXPECT_EQ(Over(0.5, true).most_bytes(), 0U);
}

TEST(DeltaTerms, TheMostBytesAreThoseThatTakeAsLongAsAll) {
  for (const double gb_per_s : {0.01, 0.125, 1.25, 3.0}) {
    const DeltaTerms terms = Over(gb_per_s);
    EXPECT_NEAR(terms.delta_ms(terms.most_bytes()), terms.dense_ms(), 1e-3) << gb_per_s;
    EXPECT_LT(terms.delta_ms(terms.most_bytes() / 2), terms.dense_ms()) << gb_per_s;
  }
}

TEST(DeltaTerms, WhereNothingWasMeasuredFewerBytesAreBetter) {
  EXPECT_EQ(Over(0).most_bytes(), kBytes);
  EXPECT_EQ(Over(0).dense_ms(), 0);
  EXPECT_EQ(Over(0).delta_ms(5), 0);
}

TEST(DeltaTerms, WhoAlwaysTakesThemAsksForAnyAndWhoNeverDoesForNone) {
  DeltaTerms terms = Over(20, true);
  terms.use = DeltaUse::kAlways;
  EXPECT_GT(terms.most_bytes(), 2 * kBytes);
  terms = Over(0.1);
  terms.use = DeltaUse::kNever;
  EXPECT_EQ(terms.most_bytes(), 0U);
}

TEST(DeltaUse, HasNames) {
  for (const std::string& name : KnownDeltaUses()) EXPECT_EQ(DeltaUseName(DeltaUseNamed(name)), name);
  EXPECT_THAT([] { (void)DeltaUseNamed("sometimes"); },
              ThrowsMessage<Error>("delta: expected auto, always or never, got 'sometimes'"));
}

}  // namespace
}  // namespace layercast
