#include "src/trace/otlp/otlp_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class OtlpTargetTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"ENDPOINT", "TRACES_ENDPOINT", "HEADERS"}) {
      ::unsetenv((std::string("OTEL_EXPORTER_OTLP_") + name).c_str());
    }
  }
};

TEST_F(OtlpTargetTest, IsNoneWhereNobodyNamesOne) { EXPECT_FALSE(OtlpTarget::From("")); }

TEST_F(OtlpTargetTest, IsABaseToWhichThePathIsAdded) {
  for (const char* url : {"http://localhost:4318", "http://localhost:4318/"}) {
    const auto target = OtlpTarget::From(url);
    ASSERT_TRUE(target);
    EXPECT_EQ(target->base, "http://localhost:4318");
    EXPECT_EQ(target->path, "/v1/traces");
  }
  EXPECT_EQ(OtlpTarget::From("https://a/otel")->path, "/otel/v1/traces");
}

TEST_F(OtlpTargetTest, TakesTheVariablesOfOpenTelemetryAndTheFlagBeforeThem) {
  ::setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1", 1);
  EXPECT_EQ(OtlpTarget::From("")->base, "http://all:1");
  ::setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:2/whole", 1);
  EXPECT_EQ(OtlpTarget::From("")->base, "http://traces:2");
  EXPECT_EQ(OtlpTarget::From("")->path, "/whole");
  EXPECT_EQ(OtlpTarget::From("http://flag:3")->base, "http://flag:3");
}

TEST_F(OtlpTargetTest, SendsHeadersAlong) {
  ::setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b%3D, x=1,broken,=none", 1);
  EXPECT_THAT(OtlpTarget::From("http://a:1")->headers, ElementsAre(Pair("api-key", "a b="), Pair("x", "1")));
}

TEST_F(OtlpTargetTest, RefusesWhatIsNoUrl) {
  for (const char* url : {"localhost:4318", "tcp://a:1", "http://", "http:///x"}) {
    EXPECT_THAT(testing::ErrorOf([&] { OtlpTarget::From(url); }, ErrorCode::kInvalidArgument), HasSubstr(url));
  }
}

}  // namespace
}  // namespace layercast
