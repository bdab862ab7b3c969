// What an engine is made from, as its files say it: read once, by the engine's parent process, so that a rank that is
// started anew is made from the same, whatever has become of the files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/model/named_draft.h"
#include "layercast/model/module.h"
#include "layercast/model/weight_rules.h"
#include "layercast/model_description.h"
#include "layercast/parallel.h"
#include "src/base/unique_fd.h"

namespace layercast {

// Their names, absolute but for "mtp"; the last two may be empty.
struct ModelFileNames {
  std::string model;    // a folder with config.json
  std::string draft{};  // NamedDraft's
  std::string weight_rules{};
};

// Immutable value.
class ModelFiles {
 public:
  static ModelFiles Read(const ModelFileNames& names);
  // As a rank gets them: by a descriptor that it inherits. Its names are for errors alone.
  static ModelFiles FromDescriptor(int fd, const ModelFileNames& names);
  UniqueFd ToDescriptor() const;

  const ModelDescription& description() const { return description_; }
  // One rank's tree, on meta. Messages name the file.
  std::unique_ptr<Module> BuildTree(const ParallelConfig& parallel) const;

 private:
  ModelFiles(ModelDescription description, NamedDraft draft, std::string rules_name, std::string rules)
      : description_(std::move(description)),
        draft_(std::move(draft)),
        rules_name_(std::move(rules_name)),
        rules_(std::move(rules)) {}

  std::optional<WeightRules> Rules() const;

  ModelDescription description_;
  NamedDraft draft_;
  std::string rules_name_;  // empty: none
  std::string rules_;
};

}  // namespace layercast
