#include "src/base/text/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;

std::string WhyRefused(const auto& work) { return testing::ErrorOf(work, ErrorCode::kInvalidArgument); }

TEST(Expression, IsFoundAnywhereOrAtTheBeginning) {
  const Expression expression(R"(layers\.(\d+))");
  EXPECT_TRUE(expression.IsIn("model.layers.12.mlp"));
  EXPECT_FALSE(expression.IsIn("model.layers.x.mlp"));
  EXPECT_FALSE(expression.Begins("model.layers.12.mlp"));
  EXPECT_TRUE(expression.Begins("layers.12.mlp"));
  EXPECT_TRUE(Expression("^$").IsIn(""));
}

TEST(Expression, KnowsWhatPythonsKnow) {
  EXPECT_TRUE(Expression(R"(^(?!.*lm_head).*_proj$)").Begins("model.q_proj"));
  EXPECT_FALSE(Expression(R"(^(?!.*lm_head).*_proj$)").Begins("lm_head.q_proj"));
  EXPECT_TRUE(Expression(R"((?i)mlp)").IsIn("model.MLP"));
  EXPECT_TRUE(Expression(R"((?<=gate_)up)").IsIn("gate_up_proj"));
  EXPECT_FALSE(Expression("proj$").IsIn("proj\n"));  // nothing is trimmed from a name
}

TEST(Expression, ReplacesEveryMatch) {
  EXPECT_EQ(Expression("a(b)?").Replace("ab.a.c", "<$1$$$0>"), "<b$ab>.<$a>.c");
  EXPECT_EQ(Expression("x").Replace("abc", "y"), "abc");
  EXPECT_EQ(Expression("a").Replace(std::string(300, 'a'), "bc").size(), 600U);
}

TEST(Expression, WhatIsNoneIsRefusedWithThePlace) {
  EXPECT_EQ(WhyRefused([] { Expression("a(b"); }),
            "regular expression 'a(b': missing closing parenthesis, at character 3");
  EXPECT_EQ(WhyRefused([] { (void)Expression("a").Replace("a", "$7"); }),
            "regular expression 'a': unknown substring, on 'a'");
}

TEST(Expression, NoneIsTooLargeOrTooDeepOrTakesForEver) {
  EXPECT_THAT(WhyRefused([] { Expression(std::string(100'000, '(')); }),
              HasSubstr("expected at most 1024 characters, got 100000"));
  EXPECT_THAT(WhyRefused([] { Expression(std::string(1024, '(')); }), HasSubstr("at character 251"));
  EXPECT_THAT(WhyRefused([] { Expression("(((a{1000}){1000}){1000})"); }), HasSubstr("too large"));
  const Expression backtracks("(a*)*[bc]");
  EXPECT_EQ(WhyRefused([&] { (void)backtracks.IsIn(std::string(40, 'a')); }),
            "regular expression '(a*)*[bc]': match limit exceeded, on '" + std::string(40, 'a') + "'");
}

}  // namespace
}  // namespace layercast
