// Frames that are folded lead from where the first begins to where the last ends, and are no longer than a chain.
#include <gtest/gtest.h>

#include "src/base/digest/digest.h"
#include "src/delta/delta_frame.h"
#include "tests/src/delta/slow_delta.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using test::Bytes;
using test::Drift;
using test::MakeVersions;
using test::SlowFrame;
using testing::ErrorOf;

// Another version, some of whose elements differ.
Bytes Drifted(const Bytes& from, std::size_t element_bytes, double density, std::uint32_t seed) {
  std::mt19937 random(seed);
  Bytes to = from;
  for (std::size_t i = 0; i < to.size(); i += element_bytes) {
    if (static_cast<double>(random()) / 4294967296.0 >= density) continue;
    if (random() % 8 == 0) {
      for (std::size_t j = 0; j < element_bytes; ++j) to[i + j] = static_cast<std::byte>(random());
    } else {
      to[i] = static_cast<std::byte>(std::to_integer<unsigned>(to[i]) + (random() % 2 == 0 ? 1U : 255U));
    }
  }
  return to;
}

TEST(DeltaFold, FoldedFramesLeadWhereTheChainDoes) {
  for (const std::size_t element_bytes : {1U, 2U, 4U}) {
    for (const std::size_t elements : {1U, 65U, 3001U}) {
      for (const double first_density : {0.0, 0.01, 0.3, 1.0}) {
        for (const double second_density : {0.0, 0.01, 0.3, 1.0}) {
          for (const DeltaEffort effort : {DeltaEffort::kFast, DeltaEffort::kSmall}) {
            const Bytes a = MakeVersions({element_bytes, elements}, 23).base;
            const Bytes b = Drifted(a, element_bytes, first_density, 29);
            const Bytes c = Drifted(b, element_bytes, second_density, 31);
            const Bytes folded = FoldDeltas(EncodeDelta({.bytes = a}, {.bytes = b}, element_bytes, effort),
                                            EncodeDelta({.bytes = b}, {.bytes = c}, element_bytes, effort), effort);
            Bytes bytes = a;
            ApplyDelta(folded, bytes);
            ASSERT_EQ(bytes, c);
            SlowFrame slow(folded);
            if (slow.form != 1) {
              ASSERT_EQ(slow.Read(a), test::SlowChanges(a, c, element_bytes));
            }
          }
        }
      }
    }
  }
}

TEST(DeltaFold, AStepBackFoldsToNothing) {
  const Bytes a = MakeVersions({2, 1000}, 23).base;
  const Bytes b = Drifted(a, 2, 0.05, 29);
  const Bytes folded = FoldDeltas(EncodeDelta({.bytes = a}, {.bytes = b}, 2, DeltaEffort::kFast),
                                  EncodeDelta({.bytes = b}, {.bytes = a}, 2, DeltaEffort::kFast), DeltaEffort::kFast);
  EXPECT_EQ(ReadDeltaHeader(folded).form, DeltaForm::kSkip);
}

TEST(DeltaFold, EightStepsFoldedAreShorterThanTheirChain) {
  std::vector<Bytes> versions = {MakeVersions({2, 50'000, 0.0, Drift::Kind::kSmallSteps}, 37).base};
  Bytes folded;
  std::size_t chain = 0;
  for (std::uint32_t step = 0; step < 8; ++step) {
    versions.push_back(Drifted(versions.back(), 2, 0.02, 41 + step));
    const Bytes frame = EncodeDelta({.bytes = versions[step]}, {.bytes = versions.back()}, 2, DeltaEffort::kSmall);
    chain += frame.size();
    folded = step == 0 ? frame : FoldDeltas(folded, frame, DeltaEffort::kSmall);
  }
  EXPECT_LT(folded.size(), chain);
  Bytes bytes = versions.front();
  ApplyDelta(folded, bytes);
  EXPECT_EQ(bytes, versions.back());
}

TEST(DeltaFold, WhatDoesNotFollowIsRefused) {
  const Bytes a = MakeVersions({2, 1000}, 23).base;
  const Bytes b = Drifted(a, 2, 0.05, 29);
  const Bytes c = Drifted(b, 2, 0.05, 31);
  const auto delta = [](const Bytes& from, const Bytes& to, DeltaEffort effort = DeltaEffort::kFast) {
    return EncodeDelta({.bytes = from}, {.bytes = to}, 2, effort);
  };
  EXPECT_THAT(ErrorOf([&] { FoldDeltas(delta(a, b), delta(a, c), DeltaEffort::kFast); }, ErrorCode::kInvalidArgument),
              ::testing::HasSubstr("the first leads to " + DigestOf(b).ToHex()));
  const Bytes shorter(a.begin(), a.begin() + 100);
  EXPECT_THAT(ErrorOf([&] { FoldDeltas(delta(a, b), delta(shorter, shorter), DeltaEffort::kFast); },
                      ErrorCode::kInvalidArgument),
              ::testing::HasSubstr("1000 elements of 2 bytes, and 50 of 2"));
  const test::TwoVersions split = MakeVersions({2, 100'000, 0.01, Drift::Kind::kSmallFirst}, 5);
  const Bytes two_lists = delta(split.base, split.next, DeltaEffort::kSmallest);
  ASSERT_EQ(ReadDeltaHeader(two_lists).form, DeltaForm::kTwoLists);
  EXPECT_THAT(ErrorOf([&] { FoldDeltas(two_lists, delta(split.next, split.base), DeltaEffort::kFast); },
                      ErrorCode::kUnsupported),
              ::testing::HasSubstr("in two lists"));
}

}  // namespace
}  // namespace layercast
