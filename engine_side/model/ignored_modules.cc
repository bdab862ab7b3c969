#include "engine_side/model/ignored_modules.h"

#include <algorithm>

#include "engine_side/model/config_fields.h"

namespace layercast {
namespace {

constexpr std::string_view kExpression = "re:";

std::regex Compiled(const std::string& entry) {
  try {
    return std::regex(entry.substr(kExpression.size()));
  } catch (const std::regex_error&) {
    ConfigFields::Refuse("quantization_config: '" + entry + "' is not a regular expression");
  }
}

// '*' stands for any text.
bool MatchesWildcards(std::string_view text, std::string_view pattern) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return text == pattern;
  if (!text.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t begin = star; begin <= text.size(); ++begin) {
    if (MatchesWildcards(text.substr(begin), rest)) return true;
  }
  return false;
}

}  // namespace

IgnoredModules::IgnoredModules(std::span<const std::string> entries) {
  for (const std::string& entry : entries) {
    if (entry.starts_with(kExpression)) {
      expressions_.push_back(Compiled(entry));
    } else if (entry.find('*') != std::string::npos) {
      patterns_.push_back(entry);
    } else if (!entry.empty()) {
      names_.insert(entry);
    }
  }
}

bool IgnoredModules::Contains(std::string_view path) const {
  if (IsNamed(path)) return true;
  const auto is_below = [&](const std::string& pattern) {
    return MatchesWildcards(path, pattern) || MatchesWildcards(path, pattern + ".*");
  };
  const auto begins_with = [&](const std::regex& expression) {
    return std::regex_search(path.begin(), path.end(), expression, std::regex_constants::match_continuous);
  };
  return std::ranges::any_of(patterns_, is_below) || std::ranges::any_of(expressions_, begins_with);
}

// Every run of whole segments is looked up: paths have few.
bool IgnoredModules::IsNamed(std::string_view path) const {
  if (names_.empty()) return false;
  for (std::size_t begin = 0; begin <= path.size();) {
    std::size_t end = begin;
    do {
      end = std::min(path.find('.', end), path.size());
      if (names_.contains(path.substr(begin, end - begin))) return true;
    } while (++end <= path.size());
    const std::size_t dot = path.find('.', begin);
    if (dot == std::string_view::npos) return false;
    begin = dot + 1;
  }
  return false;
}

}  // namespace layercast
