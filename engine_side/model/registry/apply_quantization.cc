// CheckpointQuantization::ApplyTo: what a checkpoint's configuration says about each layer of a tree.
#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "engine_side/model/config/checkpoint_quantization.h"
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/config/listed_modules.h"
#include "engine_side/model/naming/path.h"
#include "layercast/model/quantizable_layer.h"

namespace layercast {
namespace {

using Group = CheckpointQuantization::Group;

[[noreturn]] void Refuse(const std::string& what) { ConfigFields::Refuse("quantization_config: " + what); }

std::vector<std::string> AllOf(const std::vector<QuantizableLayer::FusedModules>& way) {
  std::vector<std::string> modules;
  for (const QuantizableLayer::FusedModules& fused : way) std::ranges::copy(fused, std::back_inserter(modules));
  return modules;
}

// The mapper's rules that replace a prefix of the checkpoint's by one of the tree's, the last rule first.
std::vector<NameRule> PrefixesOf(const WeightsMapper& mapper) {
  std::vector<NameRule> prefixes;
  for (const NameRule& rule : mapper.rules()) {
    if (rule.match == NameRule::Match::kPrefix && rule.to) prefixes.insert(prefixes.begin(), rule);
  }
  return prefixes;
}

constexpr std::size_t kMostNames = 64;  // a cap: each rule that prepends a prefix doubles the names

// The names that `path`, a path in the tree, may have in checkpoints, beginning with the path itself: "model.layers.0"
// is also "model.language_model.layers.0".
std::vector<std::string> NamesOf(const std::string& path, const std::vector<NameRule>& prefixes) {
  std::vector<std::string> names = {path};
  for (const NameRule& rule : prefixes) {
    for (std::size_t i = 0, known = names.size(); i < known && names.size() < kMostNames; ++i) {
      if (rule.to->empty()) {
        names.push_back(JoinPath(rule.from, names[i]));
      } else if (names[i] == *rule.to || names[i].starts_with(*rule.to + ".")) {
        names.push_back(rule.from + names[i].substr(rule.to->size()));
      }
    }
  }
  return names;
}

// The modules that `entries` list. Entries may use the checkpoint's names; the tree's names for them are added.
ListedModules Listed(const std::vector<std::string>& entries, const Module& root) {
  std::vector<std::string> all = entries;
  for (const std::string& entry : entries) {
    const bool is_name = !entry.empty() && !entry.starts_with("re:");
    if (is_name && root.mapper().Matches(entry)) all.push_back(root.mapper().Map(entry).name);
  }
  return ListedModules(all);
}

// Whether a class that a configuration names is the layer's. "Linear" is every layer that a recipe applies to, experts
// too, since they are linear layers in checkpoints. Any other name has to be (part of) the name of the layer's own
// class.
bool IsOfClass(const QuantizableLayer& layer, const std::string& name) {
  return name == "Linear" || layer.class_name().find(name) != std::string::npos;
}

class Applier {
 public:
  Applier(const CheckpointQuantization& quantization, const Module& root)
      : quantization_(quantization),
        ignored_(Listed(quantization.ignored, root)),
        prefixes_(PrefixesOf(root.mapper())) {
    for (const Group& group : quantization.groups) groups_.push_back(Listed(group.modules, root));
  }

  void ApplyBelow(Module& module, const std::string& path) const {
    if (auto* layer = dynamic_cast<QuantizableLayer*>(&module)) Apply(*layer, path);
    for (const auto& [name, child] : module.children()) ApplyBelow(*child, JoinPath(path, name));
  }

 private:
  void Apply(QuantizableLayer& layer, const std::string& path) const {
    const std::string out = WhatIsIgnored(layer, path);
    if (!out.empty()) {
      return layer.SetQuantization(false, std::nullopt, quantization_.said_by + " leaves out " + out);
    }
    if (quantization_.groups.empty()) {
      return layer.SetQuantization(true, quantization_.form, quantization_.why_no_form);
    }
    const Group* group = GroupOf(layer, path);
    if (group == nullptr) {
      return layer.SetQuantization(false, std::nullopt, quantization_.said_by + " has no group of it");
    }
    layer.SetQuantization(true, group->form, group->why_no_form);
  }

  // What of the layer is ignored, and by which entry: the layer itself, or all of its parts, of which one is named.
  // Empty if nothing is. Parts are tried before the layer, because an expression for "v_proj" alone also matches
  // "qkv_proj".
  std::string WhatIsIgnored(const QuantizableLayer& layer, const std::string& path) const {
    if (ignored_.empty()) return {};
    const auto by_entry = [&](const std::string& module) {
      return module + " (by its entry '" + std::string(Find(ignored_, module).value_or("")) + "')";
    };
    const auto is_ignored = [&](const std::string& module) { return Find(ignored_, module).has_value(); };
    std::string all;
    std::string some;
    for (const std::vector<QuantizableLayer::FusedModules>& way : layer.CheckpointModules(path)) {
      const std::vector<std::string> parts = AllOf(way);
      const auto left_out = std::ranges::find_if(parts, is_ignored);
      if (left_out == parts.end()) continue;
      const auto kept = std::ranges::find_if_not(parts, is_ignored);
      if (kept == parts.end()) {
        all = by_entry(parts.front()) + (parts.size() > 1 ? " and all others of its parts" : "");
        break;
      }
      if (some.empty()) some = *kept + " is, " + *left_out + " is ignored";
    }
    if (!all.empty() || some.empty()) return is_ignored(path) ? by_entry(path) : all;
    Refuse("some but not all parts of " + path + " are quantized: " + some + "; a fused layer has one precision");
  }

  // The group that the layer is in, or null. Found by the names of its parts, else by its own name, else by its class.
  const Group* GroupOf(const QuantizableLayer& layer, const std::string& path) const {
    std::string several;
    for (const std::vector<QuantizableLayer::FusedModules>& way : layer.CheckpointModules(path)) {
      const std::vector<std::string> parts = AllOf(way);
      if (std::ranges::none_of(parts, [&](const std::string& part) { return Naming(part) != nullptr; })) continue;
      const auto group_of = [&](const std::string& part) {
        const Group* named = Naming(part);
        return named != nullptr ? named : OfItsClass(layer);
      };
      const Group* first = group_of(parts.front());
      const auto other =
          std::ranges::find_if_not(parts, [&](const std::string& part) { return IsSame(first, group_of(part)); });
      if (other == parts.end()) return first;
      if (several.empty()) several = Placed(parts.front(), first) + ", " + Placed(*other, group_of(*other));
    }
    if (!several.empty()) {
      Refuse("parts of " + path + " have several forms: " + several + "; a fused layer has one precision");
    }
    const Group* named = Naming(path);
    return named != nullptr ? named : OfItsClass(layer);
  }

  const Group* Naming(const std::string& module) const {
    const auto found =
        std::ranges::find_if(groups_, [&](const ListedModules& group) { return Find(group, module).has_value(); });
    return found == groups_.end() ? nullptr : &quantization_.groups[static_cast<std::size_t>(found - groups_.begin())];
  }

  const Group* OfItsClass(const QuantizableLayer& layer) const {
    const auto found = std::ranges::find_if(quantization_.groups, [&](const Group& group) {
      return std::ranges::any_of(group.classes, std::bind_front(IsOfClass, std::cref(layer)));
    });
    return found == quantization_.groups.end() ? nullptr : &*found;
  }

  static bool IsSame(const Group* one, const Group* other) {
    if (one == other) return true;
    return one != nullptr && other != nullptr && one->form && one->form == other->form;
  }

  static std::string Placed(const std::string& module, const Group* group) {
    if (group == nullptr) return module + " is in no group";
    const std::string form = group->form ? std::string(group->form->recipe()) : group->why_no_form;
    return module + " is in " + group->said_by + (form.empty() ? "" : " (" + form + ")");
  }

  // The entry that lists the module under any of its names.
  std::optional<std::string_view> Find(const ListedModules& listed, const std::string& module) const {
    if (listed.empty()) return std::nullopt;
    for (const std::string& name : NamesOf(module, prefixes_)) {
      if (const auto entry = listed.Find(name)) return entry;
    }
    return std::nullopt;
  }

  const CheckpointQuantization& quantization_;
  const ListedModules ignored_;
  const std::vector<NameRule> prefixes_;
  std::vector<ListedModules> groups_;  // for each of quantization_.groups
};

}  // namespace

void CheckpointQuantization::ApplyTo(Module& root) const {
  if (!method.empty()) Applier(*this, root).ApplyBelow(root, "");
}

}  // namespace layercast
