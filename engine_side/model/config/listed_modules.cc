#include "engine_side/model/config/listed_modules.h"

#include <algorithm>

#include "engine_side/model/config/config_fields.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::string_view kExpression = "re:";
constexpr std::size_t kMostPatterns = 4096;  // each is tried on each module

Expression ExpressionOf(const std::string& entry) {
  try {
    return Expression(entry.substr(kExpression.size()));
  } catch (const Error& error) {
    ConfigFields::Refuse(std::string("quantization_config: ") + error.what());
  }
}

// Whether the pattern matches the whole text; '*' stands for any text. When a match fails, only the last '*' met so far
// is tried with a longer text: what stands before it has matched as early as it can.
bool MatchesWildcards(std::string_view text, std::string_view pattern) {
  std::size_t at = 0;  // in the pattern
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;  // where in the text that star's part was last tried to end
  for (std::size_t i = 0; i < text.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      resume = i;
    } else if (at < pattern.size() && pattern[at] == text[i]) {
      ++at;
      ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace

ListedModules::ListedModules(std::span<const std::string> entries) {
  for (const std::string& entry : entries) {
    if (entry.starts_with(kExpression)) {
      expressions_.push_back({entry, ExpressionOf(entry)});
    } else if (entry.find('*') != std::string::npos) {
      patterns_.push_back(entry);
    } else if (!entry.empty()) {
      names_.insert(entry);
    }
  }
  if (const std::size_t count = expressions_.size() + patterns_.size(); count > kMostPatterns) {
    ConfigFields::Refuse("quantization_config: expected at most " + std::to_string(kMostPatterns) +
                         " patterns of modules that are left out, got " + std::to_string(count));
  }
}

std::optional<std::string_view> ListedModules::Find(std::string_view path) const {
  if (const auto name = FindName(path)) return name;
  for (const std::string& pattern : patterns_) {
    if (MatchesWildcards(path, pattern) || MatchesWildcards(path, pattern + ".*")) return pattern;
  }
  for (const RegularExpression& regular : expressions_) {
    if (regular.expression.Begins(path)) return regular.entry;
  }
  return std::nullopt;
}

// Looks up every run of whole segments of the path. There are few, since paths are short.
std::optional<std::string_view> ListedModules::FindName(std::string_view path) const {
  if (names_.empty()) return std::nullopt;
  for (std::size_t begin = 0; begin <= path.size();) {
    std::size_t end = begin;
    do {
      end = std::min(path.find('.', end), path.size());
      if (const auto name = names_.find(path.substr(begin, end - begin)); name != names_.end()) return *name;
    } while (++end <= path.size());
    const std::size_t dot = path.find('.', begin);
    if (dot == std::string_view::npos) return std::nullopt;
    begin = dot + 1;
  }
  return std::nullopt;
}

}  // namespace layercast
