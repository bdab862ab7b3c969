#include "layercast/model/weight_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "layercast/error.h"
#include "layercast/model/linear.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tree.h"

namespace layercast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Refusal(const std::string& json) {
  return testing::ErrorOf([&] { (void)WeightRules::Parse(json); }, ErrorCode::kInvalidArgument);
}

std::string RefusalOfTransform(const std::string& rule) { return Refusal(R"({"transforms": [)" + rule + "]}"); }

TEST(WeightRules, AreTheTransformsAndNamesOfTheFile) {
  const WeightRules rules = WeightRules::Parse(R"({
    "transforms": [
      {"suffix": "a", "squeeze": {"axis": 1}},
      {"prefix": "p", "reshape": {"shape": [2, -1]}},
      {"regex": "^p\\.", "transpose": {}},
      {"segments": "p.a", "split": {"axis": 0, "into": [{"to": "x", "size": 3}, {"to": "y", "size": 4}]}},
      {"suffix": "a", "deinterleave": {"axis": 2, "into": ["x", "y"]}}
    ],
    "names": [{"prefix": "policy", "to": ""}, {"suffix": "b", "drop": "not served"}]
  })");
  EXPECT_THAT(rules.transforms.Describe("p.a"),
              ElementsAre("suffix a: squeeze axis 1", "prefix p: reshape to [2, -1]", "regex ^p\\.: transpose",
                          "segments p.a: split axis 0 into x (3), y (4)", "suffix a: deinterleave axis 2 into x, y"));
  EXPECT_EQ(rules.names.Map("policy.c").name, "c");
  ASSERT_EQ(rules.names.rules().size(), 2U);
  EXPECT_EQ(rules.names.rules()[1].Describe(), "drop suffix b: not served");
}

TEST(WeightRules, MayBeOfOneKindOrNone) {
  EXPECT_TRUE(WeightRules::Parse(R"({"transforms": []})").names.empty());
  EXPECT_FALSE(WeightRules::Parse("{}").transforms.Matches("a"));
}

TEST(WeightRules, NameTheFieldThatIsWrong) {
  EXPECT_THAT(Refusal("{"), StartsWith("weight rules are not JSON: "));
  EXPECT_EQ(Refusal("[]"), "expected an object, got []");
  EXPECT_EQ(Refusal(R"({"transforms": NaN})"), "transforms: expected a list, got NaN");
  EXPECT_EQ(Refusal(R"({"rules": []})"), "expected the fields transforms, names, got 'rules'");
  EXPECT_EQ(Refusal(R"({"names": {}})"), "names: expected a list, got {}");
  EXPECT_EQ(Refusal(R"({"names": [{"prefix": "a", "to": "b"}, {"prefix": "a"}]})"),
            R"(names[1]: expected one of to, drop, got {"prefix":"a"})");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "squeeze": {"axis": -1}})"),
            "transforms[0].squeeze.axis: expected an integer of at least 0, got -1");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "squeeze": {"axis": 1.5}})"),
            "transforms[0].squeeze.axis: expected an integer of at least 0, got 1.5");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "squeeze": {"axis": 18446744073709551615}})"),
            "transforms[0].squeeze.axis: expected an integer of at least 0, got 18446744073709551615");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": 3, "transpose": {}})"), "transforms[0].suffix: expected a text, got 3");
  EXPECT_EQ(RefusalOfTransform(R"({"transpose": {}})"),
            R"(transforms[0]: expected one of segments, prefix, suffix, regex, got {"transpose":{}})");
  EXPECT_THAT(RefusalOfTransform(R"({"suffix": "a", "prefix": "b", "transpose": {}})"),
              StartsWith("transforms[0]: expected one of segments, prefix, suffix, regex, got {"));
  EXPECT_THAT(RefusalOfTransform(R"({"suffix": "a", "transpose": {}, "squeeze": {"axis": 0}})"),
              StartsWith("transforms[0]: expected one of squeeze, reshape, transpose, split, deinterleave, got {"));
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "transpose": true})"),
            "transforms[0].transpose: expected an object, got true");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "transpose": {"axes": [0, 1]}})"),
            "transforms[0].transpose: expected no fields, got 'axes'");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "split": {"axis": 0, "into": [{"to": "b", "size": 0}]}})"),
            "transforms[0].split.into[0].size: expected an integer of at least 1, got 0");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "split": {"into": []}})"),
            R"(transforms[0].split: expected a field 'axis', got {"into":[]})");
  EXPECT_EQ(RefusalOfTransform(R"({"suffix": "a", "deinterleave": {"axis": 0, "into": ["b", 4]}})"),
            "transforms[0].deinterleave.into[1]: expected a text, got 4");
}

TEST(WeightRules, NameTheRuleThatMeansNothing) {
  EXPECT_THAT(RefusalOfTransform(R"({"suffix": "a", "reshape": {"shape": [-1, -1]}})"), HasSubstr("or -1 once"));
  EXPECT_THAT(Refusal(R"({"names": [{"regex": "(", "to": ""}]})"), HasSubstr("rule 'regex ( -> '"));
  EXPECT_THAT(Refusal(std::string(100, '[') + std::string(100, ']')), HasSubstr("more than 32 levels"));
}

TEST(WeightRules, ComeFromAFileThatIsNamed) {
  const TempFolder directory;
  const std::filesystem::path path = directory / "rules.json";
  EXPECT_THAT(testing::ErrorOf([&] { (void)WeightRules::FromFile(path); }, ErrorCode::kNotFound),
              HasSubstr(path.string()));
  directory.Write("rules.json", R"({"names": 1})");
  EXPECT_EQ(testing::ErrorOf([&] { (void)WeightRules::FromFile(path); }, ErrorCode::kInvalidArgument),
            path.string() + ": names: expected a list, got 1");
  std::filesystem::resize_file(path, (16 << 20) + 1);
  for (const auto& read : {+[](const std::filesystem::path& file) { (void)WeightRules::FromFile(file); },
                           +[](const std::filesystem::path& file) { (void)WeightRules::TextOf(file); }}) {
    EXPECT_EQ(testing::ErrorOf([&] { read(path); }, ErrorCode::kInvalidArgument),
              path.string() + ": expected at most 16777216 bytes, got 16777217");
  }
}

class OneLayer final : public testing::Tree {
 public:
  OneLayer() : Tree("OneLayer") {
    Add("first", std::make_unique<ReplicatedLinear>(LayerContext{}, 6, 2, false));
    SetMapper(WeightsMapper({NameRule::Prefix("one", "first")}));
  }
};

TEST(WeightRules, GoBeforeTheFamilysOwn) {
  OneLayer model;
  WeightRules::Parse(R"({"transforms": [{"suffix": "w", "transpose": {}}],
                         "names": [{"prefix": "policy", "to": "one"}, {"suffix": "w", "to": "weight"}]})")
      .ApplyTo(model);
  const std::vector<SourceResolution> parts = model.ResolveSource({"policy.w", DType::kF32, {6, 2}});
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_EQ(parts[0].to.tree_name, "first.weight");
  EXPECT_TRUE(parts[0].to.pieces.at(0).order.transposed);
}

}  // namespace
}  // namespace layercast
