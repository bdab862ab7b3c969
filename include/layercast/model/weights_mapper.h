// From what checkpoints call a tensor to what the module tree calls it, by rules on names alone. A family may have a
// mapper, and a host program may put its own before it.
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

// One rule. All but regular expressions match whole path segments: the prefix "model" matches "model.norm.weight", not
// "models.norm.weight". A match that is already part of the rule's own result is left alone: the suffix rule "k_scale"
// -> "attn.k_scale" does not match "self_attn.attn.k_scale". Value.
struct LAYERCAST_PUBLIC NameRule {
  enum class Match : std::uint8_t { kSegments, kPrefix, kSuffix, kRegex };

  Match match = Match::kSegments;
  std::string from;
  std::optional<std::string> to;  // empty: the tensor is left out
  std::string reason;             // why the tensor is left out
  bool report_unused = false;     // load plans name the rule if it touches no tensor

  static NameRule Segments(std::string from, std::string to);  // anywhere in the name, every occurrence
  static NameRule Prefix(std::string from, std::string to);    // `to` may be empty
  static NameRule Suffix(std::string from, std::string to);
  static NameRule Regex(std::string pattern, std::string to);  // PCRE2; every match; "$1" in `to` is its first group
  static NameRule Drop(Match match, std::string from, std::string reason);

  std::string Describe() const;       // "prefix model.language_model -> model"
  std::string DescribeMatch() const;  // "prefix model.language_model"
};

// Rules, in order. Each is applied to what the rules before it made of the name. Immutable value; copies share their
// rules.
class LAYERCAST_PUBLIC WeightsMapper {
 public:
  struct Mapping {
    std::string name;                    // as the tree calls it
    std::vector<std::uint32_t> applied;  // the rules that changed it, by their indices
    bool dropped = false;                // the last applied rule leaves the tensor out
  };

  WeightsMapper() = default;  // leaves every name as it is
  // Throws kInvalidArgument, naming the rule, if one has nothing to match, does not have whole path segments, or is not
  // a valid regular expression.
  explicit WeightsMapper(std::vector<NameRule> rules);

  // Applies the rules. Mapping a name that was mapped changes nothing: if the rules would change it again, Map throws
  // kInvalidArgument, naming the rule.
  Mapping Map(std::string_view name) const;
  // Whether some rule matches the name as it is. If none does, Map leaves it alone; most names need no more than this.
  bool Matches(std::string_view name) const;
  std::span<const NameRule> rules() const;
  bool empty() const { return rules().empty(); }

  // A mapper of these rules, followed by those of `after`.
  WeightsMapper operator|(const WeightsMapper& after) const;

 private:
  struct Rules;
  Mapping MapOnce(std::string_view name) const;

  std::shared_ptr<const Rules> rules_;  // the other owners are copies of this value
};

// The rules from every form in which checkpoints name the scales of a key/value cache to "<attention>.attn.k_scale" and
// the like. One scale for both becomes "<attention>.attn.kv_scale".
LAYERCAST_PUBLIC WeightsMapper KvScaleNames();

}  // namespace layercast
