// What checkpoints call a tensor -> what the module tree calls it: rules on names only. A family may have one; a host
// program may put its own before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"

namespace layercast {

// One rule. All but regular expressions match whole path segments: the prefix "model" begins "model.norm.weight", not
// "models.norm.weight". A match that is already part of the rule's own result is left alone: the suffix rule "k_scale"
// -> "attn.k_scale" does not match "self_attn.attn.k_scale". Value.
struct LAYERCAST_PUBLIC NameRule {
  enum class Match : std::uint8_t { kSegments, kPrefix, kSuffix, kRegex };

  Match match = Match::kSegments;
  std::string from;
  std::optional<std::string> to;  // nothing: the tensor is left out
  std::string reason;             // why it is left out
  bool report_unused = false;     // load plans name it where it touches no tensor

  static NameRule Segments(std::string from, std::string to);  // anywhere in the name, every occurrence
  static NameRule Prefix(std::string from, std::string to);    // `to` may be empty
  static NameRule Suffix(std::string from, std::string to);
  static NameRule Regex(std::string pattern, std::string to);  // PCRE2's; every match, "$1" is its first group
  static NameRule Drop(Match match, std::string from, std::string reason);

  std::string Describe() const;       // "prefix model.language_model -> model"
  std::string DescribeMatch() const;  // "prefix model.language_model"
};

// Rules in order, each applied to what those before it made of the name. Immutable value; copies share their rules.
class LAYERCAST_PUBLIC WeightsMapper {
 public:
  struct Mapping {
    std::string name;                    // as the tree calls it
    std::vector<std::uint32_t> applied;  // the rules that changed it, by their indices
    bool dropped = false;                // by the last of them
  };

  WeightsMapper() = default;  // leaves every name as it is
  // Throws kInvalidArgument, naming the rule: nothing to match, not whole segments, no regular expression.
  explicit WeightsMapper(std::vector<NameRule> rules);

  // Mapping a mapped name changes nothing: throws kInvalidArgument naming the rule where that would not hold.
  Mapping Map(std::string_view name) const;
  // Whether some rule matches the name as it is: most names of most checkpoints need no more than this.
  bool Matches(std::string_view name) const;
  std::span<const NameRule> rules() const;
  bool empty() const { return rules().empty(); }

  // First these rules, then those of `after`.
  WeightsMapper operator|(const WeightsMapper& after) const;

 private:
  struct Rules;
  Mapping MapOnce(std::string_view name) const;

  std::shared_ptr<const Rules> rules_;  // the other owners are copies of this value
};

// Every form in which checkpoints name the scales of a key/value cache -> "<attention>.attn.k_scale" and the like;
// one for both is "<attention>.attn.kv_scale".
LAYERCAST_PUBLIC WeightsMapper KvScaleNames();

}  // namespace layercast
