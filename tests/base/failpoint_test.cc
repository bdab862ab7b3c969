#include "src/base/failpoint.h"

#include <gtest/gtest.h>

#include "layercast/error.h"

namespace layercast {
namespace {

TEST(FailPoints, FireOnceAfterTheirSkips) {
  FailPoints points("stage.quantize=corrupt@2,session.fetch=throw");
  EXPECT_FALSE(points.Hit("stage.quantize"));
  EXPECT_FALSE(points.Hit("stage.quantize"));
  EXPECT_TRUE(points.Hit("stage.quantize"));
  EXPECT_FALSE(points.Hit("stage.quantize"));
  EXPECT_THROW(points.Hit("session.fetch"), Error);
  EXPECT_FALSE(points.Hit("not armed"));
}

TEST(FailPoints, RefuseWhatTheyDoNotUnderstand) {
  EXPECT_THROW(FailPoints("stage.quantize"), Error);
  EXPECT_THROW(FailPoints("stage.quantize=explode"), Error);
  EXPECT_THROW(FailPoints("stage.quantize=kill@soon"), Error);
}

}  // namespace
}  // namespace layercast
