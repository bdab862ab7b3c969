// Modules that a `quantization_config` lists: those that it leaves in full precision, or that a group is of. Used where
// it is applied to a tree.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine_side/model/expression.h"

namespace layercast {

// Immutable value. A list may name each of many thousand experts: names are looked up, patterns alone are tried.
class ListedModules {
 public:
  // Entries are whole path segments ("lm_head", "model.layers.0.mlp"), a pattern with '*', or, after "re:", a regular
  // expression. Throws kInvalidArgument naming one that is none, or where patterns and expressions are more than 4096.
  explicit ListedModules(std::span<const std::string> entries);

  bool empty() const { return names_.empty() && patterns_.empty() && expressions_.empty(); }
  // The entry that `path` is by: its segments are among those of the path, one after another, a pattern is one of
  // it or of what lies above it, or an expression matches from its beginning. Lives as long as this; nullopt: none
  // does.
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
