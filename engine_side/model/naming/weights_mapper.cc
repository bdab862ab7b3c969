#include "layercast/model/weights_mapper.h"

#include <utility>

#include "layercast/error.h"
#include "layercast/tensor.h"
#include "src/base/text/expression.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using Match = NameRule::Match;

const char* NameOf(Match match) {
  switch (match) {
    case Match::kSegments: return "segments ";
    case Match::kPrefix: return "prefix ";
    case Match::kSuffix: return "suffix ";
    case Match::kRegex: break;
  }
  return "regex ";
}

// Whether `name` has `part` at `position`, as whole segments.
bool HasSegmentsAt(std::string_view name, std::size_t position, std::string_view part) {
  if (position > name.size() || name.substr(position, part.size()) != part) return false;
  const std::size_t end = position + part.size();
  return (position == 0 || name[position - 1] == '.') && (end == name.size() || name[end] == '.');
}

// Whether the match of `rule` at `position` lies within a result of the same rule.
bool IsOwnResult(const NameRule& rule, std::string_view name, std::size_t position) {
  const std::string_view to = *rule.to;
  for (std::size_t at = to.find(rule.from); at != std::string_view::npos; at = to.find(rule.from, at + 1)) {
    if (HasSegmentsAt(to, at, rule.from) && position >= at && HasSegmentsAt(name, position - at, to)) return true;
  }
  return false;
}

// The first position from `begin` on at which the rule matches, or npos.
std::size_t FindMatch(const NameRule& rule, std::string_view name, std::size_t begin) {
  const auto matches = [&](std::size_t position) {
    return HasSegmentsAt(name, position, rule.from) && !(rule.to && IsOwnResult(rule, name, position));
  };
  if (rule.match == Match::kPrefix) return begin == 0 && matches(0) ? 0 : std::string_view::npos;
  if (rule.match == Match::kSuffix) {
    if (!name.ends_with(rule.from)) return std::string_view::npos;
    const std::size_t position = name.size() - rule.from.size();
    return position >= begin && matches(position) ? position : std::string_view::npos;
  }
  std::size_t position = name.find(rule.from, begin);
  while (position != std::string_view::npos && !matches(position)) position = name.find(rule.from, position + 1);
  return position;
}

// Replaces `count` characters by `to`. If `to` is empty, one dot beside them is removed too.
void Replace(std::string& name, std::size_t position, std::size_t count, std::string_view to) {
  if (to.empty() && position + count < name.size()) {
    ++count;
  } else if (to.empty() && position > 0) {
    --position;
    ++count;
  }
  name.replace(position, count, to);
}

void CheckRule(const NameRule& rule) {
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::kInvalidArgument, "weights mapper: rule '" + rule.Describe() + "': " + what);
  };
  if (rule.from.empty()) refuse("there is nothing to match");
  if (rule.match == Match::kRegex) return;
  const auto whole = [](std::string_view text) {
    return !text.starts_with('.') && !text.ends_with('.') && text.find("..") == std::string_view::npos;
  };
  if (!whole(rule.from) || (rule.to && !whole(*rule.to))) refuse("expected whole path segments, without dots around");
}

// Runs `work` and adds the rule to the message of an error that its regular expression throws.
template <typename Work>
auto OfRule(const NameRule& rule, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    throw Error(error.code(), "weights mapper: rule '" + rule.Describe() + "': " + error.what());
  }
}

bool ApplyRegex(const NameRule& rule, const Expression& expression, std::string& name) {
  if (!expression.IsIn(name)) return false;
  if (!rule.to) return true;
  std::string made = expression.Replace(name, *rule.to);
  name.swap(made);
  return name != made;
}

// Applies the rule to the name and returns whether it did anything. A rule that drops leaves the name as it is.
bool Apply(const NameRule& rule, const Expression* expression, std::string& name) {
  if (expression != nullptr) return OfRule(rule, [&] { return ApplyRegex(rule, *expression, name); });
  std::size_t at = FindMatch(rule, name, 0);
  const bool applies = at != std::string::npos;
  for (; rule.to && at != std::string::npos; at = FindMatch(rule, name, at + rule.to->size())) {
    Replace(name, at, rule.from.size(), *rule.to);
  }
  return applies;
}

}  // namespace

NameRule NameRule::Segments(std::string from, std::string to) {
  return {Match::kSegments, std::move(from), std::move(to), {}};
}

NameRule NameRule::Prefix(std::string from, std::string to) {
  return {Match::kPrefix, std::move(from), std::move(to), {}};
}

NameRule NameRule::Suffix(std::string from, std::string to) {
  return {Match::kSuffix, std::move(from), std::move(to), {}};
}

NameRule NameRule::Regex(std::string pattern, std::string to) {
  return {Match::kRegex, std::move(pattern), std::move(to), {}};
}

NameRule NameRule::Drop(Match match, std::string from, std::string reason) {
  return {match, std::move(from), std::nullopt, std::move(reason)};
}

std::string NameRule::DescribeMatch() const { return NameOf(match) + from; }

std::string NameRule::Describe() const {
  const std::string what = DescribeMatch();
  return to ? what + " -> " + *to : "drop " + what + ": " + reason;
}

struct WeightsMapper::Rules {
  // Null if the rule is not a regular expression.
  const Expression* ExpressionOf(std::size_t rule) const { return expressions[rule] ? &*expressions[rule] : nullptr; }

  std::vector<NameRule> rules;
  std::vector<std::optional<Expression>> expressions;  // one for each rule
};

WeightsMapper::WeightsMapper(std::vector<NameRule> rules) {
  auto checked = std::make_shared<Rules>();
  for (NameRule& rule : rules) {
    CheckRule(rule);
    checked->expressions.emplace_back();
    if (rule.match == Match::kRegex) OfRule(rule, [&] { checked->expressions.back().emplace(rule.from); });
    checked->rules.push_back(std::move(rule));
  }
  rules_ = std::move(checked);
}

std::span<const NameRule> WeightsMapper::rules() const {
  return rules_ ? std::span<const NameRule>(rules_->rules) : std::span<const NameRule>();
}

WeightsMapper WeightsMapper::operator|(const WeightsMapper& after) const {
  if (empty()) return after;
  std::vector<NameRule> both(rules().begin(), rules().end());
  both.insert(both.end(), after.rules().begin(), after.rules().end());
  return WeightsMapper(std::move(both));
}

bool WeightsMapper::Matches(std::string_view name) const {
  for (std::size_t i = 0; i < rules().size(); ++i) {
    const NameRule& rule = rules()[i];
    const Expression* expression = rules_->ExpressionOf(i);
    const bool matches = expression != nullptr ? OfRule(rule, [&] { return expression->IsIn(name); })
                                               : FindMatch(rule, name, 0) != std::string_view::npos;
    if (matches) return true;
  }
  return false;
}

WeightsMapper::Mapping WeightsMapper::MapOnce(std::string_view name) const {
  Mapping mapping{std::string(name), {}, false};
  for (std::uint32_t i = 0; i < rules().size(); ++i) {
    if (!Apply(rules()[i], rules_->ExpressionOf(i), mapping.name)) continue;
    mapping.applied.push_back(i);
    mapping.dropped = !rules()[i].to;
    if (mapping.dropped) break;
  }
  return mapping;
}

WeightsMapper::Mapping WeightsMapper::Map(std::string_view name) const {
  Mapping mapping = MapOnce(name);
  if (mapping.applied.empty() || mapping.dropped) return mapping;
  const Mapping again = MapOnce(mapping.name);
  if (again.applied.empty()) return mapping;
  throw Error(ErrorCode::kInvalidArgument, "weights mapper: " + Quote(name) + " becomes " + Quote(mapping.name) +
                                               ", which rule '" + rules()[again.applied.front()].Describe() +
                                               "' would map again");
}

}  // namespace layercast
