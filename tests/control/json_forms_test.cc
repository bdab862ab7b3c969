// A version and an error come back from JSON as they went, and what is missing is named.
#include "src/control/json_forms.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

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

}  // namespace
}  // namespace layercast
