// The files from which an engine is made: config.json, the draft's, and weight rules. The engine's parent process reads
// them once, so that a rank that is started anew is made from the same contents, whatever has become of the files.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/model/registry/named_draft.h"
#include "layercast/model/weight_rules.h"
#include "layercast/model_description.h"
#include "layercast/parallel.h"
#include "src/base/unique_fd.h"

namespace layercast {

class Module;

// The files' names. All are absolute, except that `draft` may be "mtp"; the last two may be empty.
struct ModelFileNames {
  std::string model;    // a folder with config.json
  std::string draft{};  // see NamedDraft
  std::string weight_rules{};
};

// Immutable value.
class ModelFiles {
 public:
  static ModelFiles Read(const ModelFileNames& names);
  // What ToDescriptor wrote, read by a rank from the descriptor that it inherits. The names are only for error
  // messages.
  static ModelFiles FromDescriptor(int fd, const ModelFileNames& names);
  UniqueFd ToDescriptor() const;

  const ModelDescription& description() const { return description_; }
  // Builds one rank's module tree, on meta. Errors name the file.
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
