#include "src/base/bytes/python_json.h"

#include <gtest/gtest.h>

namespace layercast {
namespace {

using Json = nlohmann::json;

TEST(PythonJson, ReadsThePlainFloatsAtAnyDepth) {
  const Json parsed = ParsePythonJson<Json>(R"({"a": NaN, "b": [Infinity, {"c": -Infinity}], "d":-Infinity,"e": -1})");
  EXPECT_EQ(parsed, Json::parse(R"({"a": {"__float__": "NaN"}, "d": {"__float__": "-Infinity"}, "e": -1,
                                    "b": [{"__float__": "Infinity"}, {"c": {"__float__": "-Infinity"}}]})"));
  EXPECT_EQ(BareFloat(parsed["a"]), "NaN");
  EXPECT_EQ(BareFloat(parsed["b"][1]["c"]), "-Infinity");
  EXPECT_EQ(BareFloat(parsed), "");
  EXPECT_EQ(BareFloat(parsed["e"]), "");
}

TEST(PythonJson, LeavesTextAlone) {
  for (const char* text : {R"({"NaN": "NaN", "x": "-Infinity \" NaN", "y\\": "Infinity"})", R"(["\\\"", "NaN"])",
                           R"({"a": null, "b": [1e3, -0.5, true]})"}) {
    EXPECT_EQ(WithoutBareFloats(text), text);
    EXPECT_EQ(ParsePythonJson<Json>(text), Json::parse(text));
  }
}

TEST(PythonJson, WhatPythonDoesNotWriteStaysRefused) {
  for (const char* text : {"{NaN: 1}", "[nan]", "[-NaN]", "[+Infinity]", "[Infinit]", "[Infinityx]", "[1NaN]", "[NaN1]",
                           "[NaN NaN]", "[-inf]", "[- Infinity]", "{\"a\": 1,}", "['a']", "[1] // two", "\"NaN"}) {
    EXPECT_TRUE(ParsePythonJson<Json>(text).is_discarded()) << text;
    EXPECT_THROW((void)ParsePythonJson<Json>(text, true), Json::parse_error) << text;
  }
}

// What comes from a peer is read by ParseShallowJson.
TEST(PythonJson, MessagesAreNotLoosened) {
  for (const char* text : {"[NaN]", "[Infinity]", "[-Infinity]"}) {
    EXPECT_TRUE(ParseShallowJson<Json>(text).is_discarded()) << text;
  }
}

}  // namespace
}  // namespace layercast
