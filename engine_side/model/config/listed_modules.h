// The modules that a `quantization_config` lists, either because they stay in full precision or because they form a
// group. Used when the configuration is applied to a module tree.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "src/base/text/expression.h"

namespace layercast {

// Immutable value. A list may name many thousand experts one by one, so plain names are looked up in a hash set; only
// patterns and expressions are tried one after another.
class ListedModules {
 public:
  // An entry is one or more whole path segments ("lm_head", "model.layers.0.mlp"), a pattern with '*', or, after "re:",
  // a regular expression. Throws kInvalidArgument naming an expression that is not valid, or if there are more than
  // 4096 patterns and expressions.
  explicit ListedModules(std::span<const std::string> entries);

  bool empty() const { return names_.empty() && patterns_.empty() && expressions_.empty(); }
  // The entry that lists `path`, or nullopt. An entry lists a path if its segments occur in the path one after another,
  // if its pattern matches the path or one of its ancestors, or if its expression matches from the beginning of the
  // path. The view lives as long as this object.
  std::optional<std::string_view> Find(std::string_view path) const;
  bool Contains(std::string_view path) const { return Find(path).has_value(); }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct RegularExpression {
    std::string entry;
    Expression expression;
  };
  std::optional<std::string_view> FindName(std::string_view path) const;

  std::unordered_set<std::string, Hash, std::equal_to<>> names_;
  std::vector<std::string> patterns_;
  std::vector<RegularExpression> expressions_;
};

}  // namespace layercast
