#include "src/base/utf8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

TEST(Utf8, WellFormedTextIsAccepted) {
  for (const char* text : {"", "plain", "\u00e9", "\u20ac", "\U0001F600", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_FALSE(FindInvalidUtf8(text).has_value()) << text;
  }
}

TEST(Utf8, TheFirstBadByteIsFound) {
  EXPECT_EQ(FindInvalidUtf8("ab\xff"), 2U);
  EXPECT_EQ(FindInvalidUtf8("\x80"), 0U);                  // a continuation alone
  EXPECT_EQ(FindInvalidUtf8("a\xc3"), 1U);                 // cut short
  EXPECT_EQ(FindInvalidUtf8("\xc0\xaf"), 0U);              // overlong
  EXPECT_EQ(FindInvalidUtf8("\xe0\x80\x80"), 0U);          // overlong
  EXPECT_EQ(FindInvalidUtf8("\xed\xa0\x80"), 0U);          // a surrogate
  EXPECT_EQ(FindInvalidUtf8("\xf4\x90\x80\x80"), 0U);      // past U+10FFFF
  EXPECT_EQ(FindInvalidUtf8("\xf0\x9f\x98"), 0U);          // cut short
  EXPECT_EQ(FindInvalidUtf8("\u20ac\u20ac\xfe\x80"), 6U);  // no such lead byte
}

TEST(Quote, EscapesWhatATerminalShouldNotSee) {
  EXPECT_EQ(Quote("model.norm"), "'model.norm'");
  EXPECT_EQ(Quote("a\n\xff\u00e9"), "'a\\x0a\\xff\u00e9'");
  EXPECT_EQ(Quote(std::string(1000, 'x')), "'" + std::string(200, 'x') + "...'");
}

TEST(Escaped, IsANameWhateverTheBytesWere) {
  EXPECT_EQ(Escaped("run-17 \u00e9"), "run-17 \u00e9");
  EXPECT_EQ(Escaped("a\nb\xff\x7f"), "a\\x0ab\\xff\\x7f");
  EXPECT_NO_THROW(CheckName("lineage", Escaped("a\nb\xff\x7f")));
  EXPECT_EQ(Escaped(std::string(1000, 'x')), std::string(1000, 'x'));
}

// Names of files and tensors may hold all of these. Each is one character that a terminal acts on, or that changes how
// the text around it is read.
constexpr const char* kUnprintable[] = {"\x01",         "\t",           "\x1b[2J",      "\r",           "\x7f",
                                        "\xc2\x80",     "\xc2\x85",     "\xc2\x9f",     "\xd8\x9c",     "\xe2\x80\x8e",
                                        "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaa", "\xe2\x80\xae", "\xe2\x81\xa6",
                                        "\xe2\x81\xa9", "\x80",         "\xff",         "\xc0\xaf",     "\xed\xa0\x80"};

bool IsPlainAscii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

TEST(Escaped, LeavesNothingThatIsNoPlainCharacter) {
  for (const char* bad : kUnprintable) {
    const std::string name = std::string("a") + bad + "b";
    for (const std::string& shown : {Escaped(name), Quote(name), EscapedLines(name), EscapedMessage(name)}) {
      EXPECT_TRUE(IsPlainAscii(shown)) << shown;
      EXPECT_NE(shown.find("a\\x"), shown.npos) << shown;
    }
    EXPECT_THROW(CheckName("lineage", name), Error);
  }
  EXPECT_EQ(Escaped(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Escaped("\xc2\x85\xe2\x80\xae"), "\\xc2\\x85\\xe2\\x80\\xae");
  for (const char* good :
       {"\u00a0", "\u00e9", "\u200d", "\u2027", "\u202f", "\u2065", "\u206a", "\u5c42", "\U0001F600"}) {
    EXPECT_EQ(Escaped(good), good);
  }
}

TEST(Escaped, ATextOfSeveralLinesKeepsThem) {
  EXPECT_EQ(EscapedLines("a\nb\x1b\n"), "a\nb\\x1b\n");
  EXPECT_EQ(EscapedMessage("two problems:\n  one\n  a\nforged: line\n"),
            "two problems:\n  one\n  a\\x0aforged: line\\x0a");
}

TEST(CheckName, RefusesWhatCannotBePrintedOrIsTooLong) {
  EXPECT_NO_THROW(CheckName("lineage", "run-17 \u00e9"));
  EXPECT_NO_THROW(CheckName("lineage", std::string(1024, 'x')));
  for (const char* name : {"a\nb", "a\x1b[31m", "\x7f", "\xff"}) {
    const std::string error = testing::ErrorOf([&] { CheckName("lineage", name); }, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error, "lineage " + Quote(name) + ": expected UTF-8 without control characters");
  }
  const std::string error = testing::ErrorOf([] { CheckName("lineage", std::string(1025, 'x')); });
  EXPECT_TRUE(error.ends_with("expected at most 1024 bytes, got 1025")) << error;
}

}  // namespace
}  // namespace layercast
