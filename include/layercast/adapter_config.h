// How a LoRA adapter is to be applied: what PEFT's adapter_config.json says, of which only what acts is kept. Used on
// both sides.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"

namespace layercast {

// A key of `rank_pattern` or `alpha_pattern`: a regular expression in Python's syntax that says of which modules its
// value is. Immutable value; copies share the compiled expression.
class LAYERCAST_PUBLIC ModulePattern {
 public:
  // Read are letters, digits and other plain characters, . * + ? {m,n} | ( ) (?: (?= (?! [ ] ^ $, \d \w \s \b and their
  // opposites, and \ before punctuation: of these PEFT's meaning is certain. Throws kUnsupported, naming key and
  // character, for anything else, and kInvalidArgument for a key that is no expression.
  explicit ModulePattern(std::string key);

  const std::string& key() const;
  // Whether the key matches the end of the path, from its beginning or from behind a dot: what PEFT asks Python as
  // `re.match(rf"(.*\.)?({key})$", path)`. Throws kInvalidArgument, naming both, if that takes more than 100 000 steps,
  // or if the path is not printable ASCII, as PyTorch's are.
  bool Matches(std::string_view module_path) const;

  bool operator==(const ModulePattern& other) const { return key() == other.key(); }

 private:
  struct LAYERCAST_HIDDEN Compiled;
  std::shared_ptr<const Compiled> compiled_;  // copies of this value are the other owners
};

// Value. The fields are PEFT's, and so are their defaults.
struct LAYERCAST_PUBLIC AdapterConfig {
  struct RankPattern {
    ModulePattern modules;
    std::int64_t r;

    bool operator==(const RankPattern&) const = default;
  };
  struct AlphaPattern {
    ModulePattern modules;
    double lora_alpha;

    bool operator==(const AlphaPattern&) const = default;
  };

  // Reads an adapter_config.json. Throws kUnsupported, naming field, value and, where there is one, the remedy, for
  // what would not be applied as PEFT applies it: other methods than plain LoRA, trained biases and whole modules,
  // bases that training moved, and any field that is not known here and is set. Throws kInvalidArgument, naming the
  // field, for what is malformed.
  static AdapterConfig FromJson(std::string_view text);

  // Of the module at that path, as Hugging Face names it ("model.layers.0.mlp.up_proj"); of a parameter that
  // target_parameters lists, the parameter's ("model.layers.0.mlp.experts.gate_up_proj"). The first pattern that
  // matches decides. Throw what ModulePattern::Matches throws.
  std::int64_t RankOf(std::string_view module_path) const;
  // By what B A x is multiplied: alpha / rank, or alpha / sqrt(rank) with use_rslora, as a double, rounded once.
  float ScaleOf(std::string_view module_path) const;

  // The keys of patterns that match none of the paths, as "rank_pattern 'q_proj'". PEFT warns of them.
  std::vector<std::string> UnusedPatterns(std::span<const std::string> module_paths) const;

  // What two configurations have in common if the same tensors mean the same with both, as JSON with sorted keys, which
  // FromJson reads. Patterns stay in their order, which acts. Left out are target_modules, of which the tensors are the
  // truth (and which PEFT writes in any order); the base's name; and, unless target_parameters needs it, peft_version.
  std::string Canonical() const;

  bool operator==(const AdapterConfig&) const = default;

  std::int64_t r = 8;
  double lora_alpha = 8;
  bool use_rslora = false;
  std::vector<RankPattern> rank_pattern{};  // in file order
  std::vector<AlphaPattern> alpha_pattern{};
  // A list of names and ends of paths, or one expression ("all-linear" among them); the other one is empty.
  std::vector<std::string> target_modules{};
  std::string target_expression{};
  std::vector<std::string> target_parameters{};
  bool ensure_weight_tying = false;
  std::string base_model_name_or_path{};  // as the file says; only for people
  std::string peft_version{};             // who wrote the file; empty: it does not say
};

}  // namespace layercast
