// Reads weight rules. WEIGHT_RULES.md describes the format.
#include "layercast/model/weight_rules.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/bytes/python_json.h"
#include "src/base/utf8.h"
#include "src/checkpoint/mapped_file.h"

namespace layercast {
namespace {

using Json = nlohmann::json;
using Match = NameRule::Match;

constexpr std::size_t kLargestFile = 16 << 20;

[[noreturn]] void Refuse(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

std::string Listed(std::initializer_list<const char*> names) {
  std::string list;
  for (const char* name : names) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

// A value in the file, and its path for messages. Value; the JSON that it refers to must outlive it.
class Field {
 public:
  Field(const Json& value, std::string where) : value_(value), where_(std::move(where)) {}

  std::string Text() const {
    if (!value_.is_string()) RefuseAs("a text");
    return value_.get<std::string>();
  }

  std::int64_t Integer(std::int64_t least) const {
    const bool fits = value_.is_number_integer() &&
                      (!value_.is_number_unsigned() ||
                       value_.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()});
    if (!fits || value_.get<std::int64_t>() < least) RefuseAs("an integer of at least " + std::to_string(least));
    return value_.get<std::int64_t>();
  }

  std::vector<Field> Items() const {
    if (!value_.is_array()) RefuseAs("a list");
    std::vector<Field> items;
    for (const Json& item : value_) items.emplace_back(item, where_ + "[" + std::to_string(items.size()) + "]");
    return items;
  }

  // The object's field of that name, or nullopt.
  std::optional<Field> Find(const char* name) const {
    const auto found = value_.find(name);
    if (found == value_.end()) return std::nullopt;
    return Field(*found, (where_.empty() ? "" : where_ + ".") + name);
  }

  Field Member(const char* name) const {
    std::optional<Field> member = Find(name);
    if (!member) RefuseAs("a field '" + std::string(name) + "'");
    return std::move(*member);
  }

  // The one of `names` that the object has, with its name. Throws if it has none of them, or several.
  std::pair<std::string, Field> OneOf(std::initializer_list<const char*> names) const {
    std::optional<std::pair<std::string, Field>> one;
    for (const char* name : names) {
      std::optional<Field> member = Find(name);
      if (!member) continue;
      if (one) RefuseAs("one of " + Listed(names));
      one.emplace(name, std::move(*member));
    }
    if (!one) RefuseAs("one of " + Listed(names));
    return std::move(*one);
  }

  const Field& ObjectOf(std::initializer_list<const char*> names) const {
    if (!value_.is_object()) RefuseAs("an object");
    for (const auto& [name, value] : value_.items()) {
      if (std::ranges::find(names, name) == names.end()) {
        Refuse((where_.empty() ? "" : where_ + ": ") + "expected " +
               (names.size() == 0 ? "no fields" : "the fields " + Listed(names)) + ", got " + Quote(name));
      }
    }
    return *this;
  }

  [[noreturn]] void RefuseAs(const std::string& expected) const {
    Refuse((where_.empty() ? "" : where_ + ": ") + "expected " + expected + ", got " + ShownJson(value_));
  }

 private:
  const Json& value_;
  std::string where_;
};

std::pair<Match, std::string> MatchOf(const Field& rule) {
  const auto [kind, text] = rule.OneOf({"segments", "prefix", "suffix", "regex"});
  const Match match = kind == "segments" ? Match::kSegments
                      : kind == "prefix" ? Match::kPrefix
                      : kind == "suffix" ? Match::kSuffix
                                         : Match::kRegex;
  return {match, text.Text()};
}

NameRule NameRuleOf(const Field& rule) {
  rule.ObjectOf({"segments", "prefix", "suffix", "regex", "to", "drop"});
  auto [match, from] = MatchOf(rule);
  const auto [what, text] = rule.OneOf({"to", "drop"});
  NameRule read = what == "drop" ? NameRule::Drop(match, std::move(from), text.Text())
                                 : NameRule{match, std::move(from), text.Text(), {}};
  read.report_unused = true;
  return read;
}

std::size_t AxisOf(const Field& of) { return static_cast<std::size_t>(of.Member("axis").Integer(0)); }

std::vector<SourceTransform::Part> PartsOf(const Field& split) {
  std::vector<SourceTransform::Part> parts;
  for (const Field& part : split.Member("into").Items()) {
    part.ObjectOf({"to", "size"});
    parts.push_back({part.Member("to").Text(), part.Member("size").Integer(1)});
  }
  return parts;
}

SourceTransform TransformOf(const Field& rule) {
  rule.ObjectOf({"segments", "prefix", "suffix", "regex", "squeeze", "reshape", "transpose", "split", "deinterleave"});
  auto [match, from] = MatchOf(rule);
  const auto [what, how] = rule.OneOf({"squeeze", "reshape", "transpose", "split", "deinterleave"});
  if (what == "squeeze") return SourceTransform::Squeeze(match, std::move(from), AxisOf(how.ObjectOf({"axis"})));
  if (what == "transpose") {
    how.ObjectOf({});
    return SourceTransform::Transpose(match, std::move(from));
  }
  if (what == "reshape") {
    Shape shape;
    for (const Field& extent : how.ObjectOf({"shape"}).Member("shape").Items()) shape.push_back(extent.Integer(-1));
    return SourceTransform::Reshape(match, std::move(from), std::move(shape));
  }
  how.ObjectOf({"axis", "into"});
  if (what == "split") return SourceTransform::Split(match, std::move(from), AxisOf(how), PartsOf(how));
  std::vector<std::string> parts;
  for (const Field& part : how.Member("into").Items()) parts.push_back(part.Text());
  return SourceTransform::Deinterleave(match, std::move(from), AxisOf(how), std::move(parts));
}

template <typename Rule, typename Read>
std::vector<Rule> RulesOf(const Field& file, const char* name, const Read& read) {
  std::vector<Rule> rules;
  if (const std::optional<Field> list = file.Find(name)) {
    for (const Field& rule : list->Items()) rules.push_back(read(rule));
  }
  return rules;
}

}  // namespace

WeightRules WeightRules::Parse(std::string_view json) {
  Json parsed;
  try {
    parsed = ParsePythonJson<Json>(json, true);
  } catch (const Json::exception& error) {
    Refuse(std::string("weight rules are not JSON: ") + error.what());
  }
  if (parsed.is_discarded()) Refuse("weight rules have more than " + std::to_string(kDeepestJson) + " levels");
  const Field file(parsed, "");
  file.ObjectOf({"transforms", "names"});
  return {SourceTransforms(RulesOf<SourceTransform>(file, "transforms", TransformOf)),
          WeightsMapper(RulesOf<NameRule>(file, "names", NameRuleOf))};
}

WeightRules WeightRules::Parse(std::string_view json, const std::filesystem::path& path) {
  try {
    return Parse(json);
  } catch (const Error& error) {
    throw Error(error.code(), path.string() + ": " + error.what());
  }
}

WeightRules WeightRules::FromFile(const std::filesystem::path& path) { return Parse(TextOf(path), path); }

std::string WeightRules::TextOf(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (file.bytes().size() > kLargestFile) {
    Refuse(path.string() + ": expected at most " + std::to_string(kLargestFile) + " bytes, got " +
           std::to_string(file.bytes().size()));
  }
  file.Populate(file.bytes());
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void WeightRules::ApplyTo(Module& root) const {
  root.SetTransforms(transforms);
  root.SetMapper(names | root.mapper());
}

}  // namespace layercast
