#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "layercast/adapter_config.h"
#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

bool Matches(const std::string& key, const std::string& path) { return ModulePattern(key).Matches(path); }

TEST(ModulePattern, MatchesAWholeEndOfThePathOrAllOfIt) {
  const std::string path = "model.layers.1.self_attn.q_proj";
  for (const char* key : {"q_proj",
                          "self_attn.q_proj",
                          "layers.*.q_proj",
                          "^model.layers.1.self_attn.q_proj",
                          ".*_proj",
                          "model.layers.1.self_attn.q_proj",
                          "(q|k)_proj",
                          R"(layers\.\d+\.self_attn\.q_proj)",
                          "[a-q]_proj",
                          "q_pro.",
                          "1.self_attn.q_proj",
                          "(?:k_proj|q_proj)",
                          "q?q_proj",
                          "q{1}_proj$",
                          "q_proj|nothing",
                          "(?!k)._proj",
                          R"(\w+)",
                          ".*",
                          "[^k]_proj",
                          "[].q]_proj"}) {
    EXPECT_TRUE(Matches(key, path)) << key;
  }
  for (const char* key :
       {"_proj", "layers.1", "^q_proj", "proj", "base_model.model.model.layers.1.self_attn.q_proj", "", "Q_PROJ",
        "q_proj.", ".q_proj", "k_proj|v_proj", R"(\d)", "[k-p]_proj", "q_proj.weight"}) {
    EXPECT_FALSE(Matches(key, path)) << key;
  }
  EXPECT_FALSE(Matches("1.self_attn.q_proj", "model.layers.11.self_attn.q_proj"));
}

TEST(ModulePattern, ADotIsAnyCharacter) {
  EXPECT_TRUE(Matches("layers.1", "model.layersX1"));
  EXPECT_TRUE(Matches("layers.1", "model.layers.1"));
  EXPECT_FALSE(Matches(R"(layers\.1)", "model.layersX1"));
  EXPECT_FALSE(Matches("layers.1", "model.layers1"));
  EXPECT_TRUE(Matches(".a", "xa")) << "of a path that the key begins before a dot";
}

TEST(ModulePattern, AnAlternativeInParenthesesOfItsOwnBreaksOutAsInPython) {
  // re.match(r"(.*\.)?(a)|(b)$", path): the first alternative need not reach the end.
  EXPECT_TRUE(Matches("a)|(b", "a.x"));
  EXPECT_TRUE(Matches("a)|(b", "b"));
  EXPECT_FALSE(Matches("a)|(b", "x.b"));
}

TEST(ModulePattern, RefusesByNameWhatPythonMayReadDifferently) {
  for (const char* key : {R"(\Zx)", R"(\v)", R"((a)\1)", "(?i)q", "(?<=q)_proj", "(?P<n>q)", "[[:alpha:]]", "q{,2}",
                          "q{", "q*+", "(*ACCEPT)", R"([\x41])", "caf\xc3\xa9", "q\n", R"(q\)", "(?>q)"}) {
    const std::string why = testing::ErrorOf([&] { (void)ModulePattern(key); }, ErrorCode::kUnsupported);
    EXPECT_THAT(why, HasSubstr("is not read")) << key;
    EXPECT_THAT(why, HasSubstr("pattern '")) << key;
  }
  for (const char* key : {"(q", "q)", "[q", "*", "q**", "[z-a]"}) {
    const std::string why = testing::ErrorOf([&] { (void)ModulePattern(key); }, ErrorCode::kInvalidArgument);
    EXPECT_THAT(why, HasSubstr("pattern '" + std::string(key) + "'")) << key;
  }
}

TEST(ModulePattern, EndsASearchThatWouldTakeTooLong) {
  const ModulePattern slow("(a*)*(a*)*(a*)*[bc]");
  EXPECT_THAT(testing::ErrorOf([&] { (void)slow.Matches(std::string(60, 'a')); }, ErrorCode::kInvalidArgument),
              HasSubstr("limit"));
}

TEST(ModulePattern, RefusesPathsThatAreNoneOfPyTorch) {
  for (const char* key : {"q.proj", "q.*proj"}) {
    EXPECT_THAT(testing::ErrorOf([&] { (void)Matches(key, "model.q\nproj"); }, ErrorCode::kInvalidArgument),
                HasSubstr("expected printable ASCII"));
  }
  EXPECT_THAT(testing::ErrorOf([] { (void)Matches("q_proj", "model.q_proj\n"); }, ErrorCode::kInvalidArgument),
              HasSubstr("expected printable ASCII"));
}

TEST(ModulePattern, OfNamesAndDotsIsDecidedAsByTheExpression) {
  // "(?:)" matches nothing, and makes a key an expression: the slow way, beside the fast one.
  const std::string letters = "ab._";
  std::string text;
  for (int i = 0; i < 4 * 4 * 4 * 4; ++i) {
    text += letters[static_cast<std::size_t>(i) % 4];
    text += letters[static_cast<std::size_t>(i / 4) % 4];
    text += letters[static_cast<std::size_t>(i / 16 + i) % 4];
  }
  int matched = 0;
  for (std::size_t at = 0; at + 12 < text.size(); at += 5) {
    const std::string key = text.substr(at, at % 4);
    const ModulePattern fast(key);
    const ModulePattern slow("(?:)" + key);
    for (std::size_t from = 0; from + 8 < text.size(); from += 3) {
      const std::string path = text.substr(from, 1 + from % 6);
      ASSERT_EQ(fast.Matches(path), slow.Matches(path)) << key << " on " << path;
      matched += fast.Matches(path) ? 1 : 0;
    }
  }
  EXPECT_GT(matched, 1000);
}

TEST(ModulePattern, IsEqualByItsKey) {
  EXPECT_EQ(ModulePattern("q.*"), ModulePattern("q.*"));
  EXPECT_NE(ModulePattern("q"), ModulePattern("k"));
  EXPECT_EQ(ModulePattern("q").key(), "q");
}

}  // namespace
}  // namespace layercast
