#include "src/base/failpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

TEST(FailPoints, FireOnceAfterTheirSkips) {
  FailPoints points("quantize=corrupt@2,commit.copy=throw");
  EXPECT_FALSE(points.Hit("quantize"));
  EXPECT_FALSE(points.Hit("quantize"));
  EXPECT_TRUE(points.Hit("quantize"));
  EXPECT_FALSE(points.Hit("quantize"));
  EXPECT_THROW(points.Hit("commit.copy"), Error);
  EXPECT_FALSE(points.Hit("verify")) << "it is not armed";
}

TEST(FailPoints, AreArmedInTheProcessTheyNameAlone) {
  constexpr const char* kSpecification = "rank1:quantize=corrupt,verify=corrupt";
  FailPoints rank_0(kSpecification, "rank0");
  FailPoints rank_1(kSpecification, "rank1");
  EXPECT_FALSE(rank_0.Hit("quantize"));
  EXPECT_TRUE(rank_0.Hit("verify"));
  EXPECT_TRUE(rank_1.Hit("quantize"));
  EXPECT_TRUE(rank_1.Hit("verify"));
}

TEST(FailPoints, AreNeitherCountedNorDisturbedWhileTheyAreSuspended) {
  FailPoints points("quantize=corrupt@1,verify=throw");
  points.Suspend(true);
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_FALSE(points.Hit("quantize"));
    EXPECT_FALSE(points.Hit("verify"));
  }
  points.Suspend(false);
  EXPECT_FALSE(points.Hit("quantize")) << "the one pass that it lets go by is still to come";
  EXPECT_TRUE(points.Hit("quantize"));
  EXPECT_THROW(points.Hit("verify"), Error);
  points.Suspend(true);
  EXPECT_FALSE(points.Hit("verify")) << "it fired";
}

TEST(FailPoints, RefuseWhatTheyDoNotUnderstand) {
  EXPECT_THROW(FailPoints("quantize"), Error);
  EXPECT_THROW(FailPoints("quantize=explode"), Error);
  EXPECT_THROW(FailPoints("quantize=kill@soon"), Error);
}

TEST(FailPoints, RefuseAMisspeltNameWhoseverItIs) {
  for (const char* specification : {"quantise=throw", "rank1:quantise=throw", "verify=throw,rank1:quantise=kill"}) {
    EXPECT_THAT(testing::ErrorOf([&] { FailPoints(specification, "rank0"); }),
                ::testing::AllOf(::testing::HasSubstr("got 'quantise'"), ::testing::HasSubstr("commit.copy")));
  }
}

}  // namespace
}  // namespace layercast
