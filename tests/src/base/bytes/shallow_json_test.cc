#include "src/base/bytes/shallow_json.h"

#include <gtest/gtest.h>

#include <string>

namespace layercast {
namespace {

using Json = nlohmann::json;

std::string Nested(int levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(ShallowJson, IsWhatTheLibraryReads) {
  const std::string text = R"({"a": [1, {"b": null}], "c": "d"})";
  EXPECT_EQ(ParseShallowJson<Json>(text), Json::parse(text));
}

TEST(ShallowJson, ManyLevelsAreDiscarded) {
  EXPECT_EQ(ParseShallowJson<Json>(Nested(kDeepestJson)), Json::parse(Nested(kDeepestJson)));
  EXPECT_TRUE(ParseShallowJson<Json>(Nested(kDeepestJson + 1)).is_discarded());
  EXPECT_TRUE(ParseShallowJson<Json>(Nested(1'000'000), true).is_discarded());
}

TEST(ShallowJson, WhatIsNoJsonIsDiscardedOrThrown) {
  EXPECT_TRUE(ParseShallowJson<Json>("{").is_discarded());
  EXPECT_THROW((void)ParseShallowJson<Json>("{", true), Json::parse_error);
}

}  // namespace
}  // namespace layercast
