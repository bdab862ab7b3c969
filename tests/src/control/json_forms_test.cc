// A version and an error come back from JSON as they went, and what is missing is named.
#include "src/control/json_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace layercast {
namespace {

using ::testing::ThrowsMessage;

TEST(JsonForms, AVersionComesBack) {
  const Version version{"run-17", 42, {0x0123456789abcdef, 7}};
  EXPECT_EQ(VersionFromJson(VersionToJson(version)), version);
  EXPECT_EQ(VersionToJson(version).dump(),
            R"({"lineage":"run-17","step":42,"digest":"0123456789abcdef0000000000000007"})");
}

TEST(JsonForms, NoVersionIsNull) { EXPECT_TRUE(VersionToJson(std::nullopt).is_null()); }

TEST(JsonForms, AVersionWithoutAStepIsRefusedByName) {
  try {
    (void)VersionFromJson({{"lineage", "run-17"}});
    FAIL() << "nothing was thrown";
  } catch (const Json::exception& error) {
    EXPECT_NE(std::string(error.what()).find("'step'"), std::string::npos) << error.what();
  }
}

TEST(JsonForms, AnErrorComesBackBehindItsPeersName) {
  const Error error = ErrorFromJson(ErrorToJson(Error(ErrorCode::kCorrupt, "chunk 3")), "rank 1: ");
  EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
  EXPECT_STREQ(error.what(), "rank 1: chunk 3");
}

TEST(JsonForms, AnErrorOfALaterReleaseIsInternal) {
  EXPECT_EQ(ErrorFromJson({{"code", "of_tomorrow"}, {"message", ""}}).code(), ErrorCode::kInternal);
  EXPECT_EQ(ErrorFromJson(Json::object()).code(), ErrorCode::kInternal);
}

TEST(JsonForms, ATimeIsANumberOfMilliseconds) {
  const std::chrono::milliseconds otherwise{7};
  EXPECT_EQ(MillisecondsFrom({{"timeout_ms", 250}}, "timeout_ms", otherwise), std::chrono::milliseconds(250));
  EXPECT_EQ(MillisecondsFrom(Json::object(), "timeout_ms", otherwise), otherwise);
  EXPECT_THROW(MillisecondsFrom({{"timeout_ms", "soon"}}, "timeout_ms", otherwise), Json::exception);
}

TEST(JsonForms, ATimeThatNoDeadlineCanHaveIsRefusedByName) {
  for (const Json& time : {Json(-1), Json(2147483648), Json(9223372036854775807), Json(1e300)}) {
    EXPECT_THAT([&] { MillisecondsFrom({{"timeout_ms", time}}, "timeout_ms", {}); },
                ThrowsMessage<Error>("params: timeout_ms: expected 0 to 2147483647, got " + time.dump()));
  }
}

TEST(JsonForms, WhateverACallThrowsIsAnError) {
  EXPECT_EQ(ErrorOfCall(Error(ErrorCode::kCorrupt, "chunk 3")).code(), ErrorCode::kCorrupt);
  EXPECT_EQ(ErrorOfCall(std::bad_alloc()).code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(ErrorOfCall(std::runtime_error("of a library")).code(), ErrorCode::kInternal);
  try {
    (void)Json::object().at("step");
  } catch (const std::exception& error) {
    EXPECT_EQ(ErrorOfCall(error).code(), ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace layercast
