// Which model family builds the tree for which architecture. The host program makes a registry, adds its own families,
// and hands it over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/dtype.h"
#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/draft_model.h"
#include "layercast/model/module.h"
#include "layercast/model_description.h"
#include "layercast/parallel.h"

namespace layercast {

// Builds the tree of one rank on meta, its parameters in `dtype`.
using ModelFactory =
    std::function<std::unique_ptr<Module>(const ModelConfig& config, const ParallelConfig& parallel, DType dtype)>;

// Value: copies are independent. Reading is thread-safe.
class LAYERCAST_PUBLIC ModelRegistry {
 public:
  // With the families of this build: docs/models.md lists them.
  static ModelRegistry Builtin();

  // `architecture`: the name in config.json's `architectures`. `limits`: in words, what the family leaves out.
  // Throws kInvalidArgument if it is registered already.
  void Register(std::string architecture, ModelFactory factory, std::string limits = {});
  // For draft layers in the target's own checkpoint (`draft` empty in BuildWithDraft) `architecture` is the target's;
  // for a draft model with a checkpoint of its own it is the draft model's. Throws kInvalidArgument if it is registered
  // already.
  void RegisterDraftLayers(std::string architecture, DraftFactory factory);
  void RegisterDraftModel(std::string architecture, DraftFactory factory);
  std::vector<std::string> architectures() const;                    // sorted
  const std::string& limits(const std::string& architecture) const;  // of one that is registered

  // The tree of the first of the configuration's architectures that is known, in the configuration's dtype. `names`:
  // what the trainer calls tensors -> what the family's checkpoints call them. Throws kUnsupported, listing the known
  // ones, if none is known, and kInvalidArgument on an invalid configuration.
  std::unique_ptr<Module> Build(const ModelConfig& config, const ParallelConfig& parallel,
                                const WeightsMapper& names = {}) const;
  std::unique_ptr<Module> Build(const ModelDescription& description, const ParallelConfig& parallel,
                                const WeightsMapper& names = {}) const;
  // The same, with a second tree under kDraftRoot, for the draft model that speculates for it: built from the draft
  // layers of the target's own checkpoint (MTP), or as `draft` describes it. In a pipeline the last stage has it, and
  // the embedding that it shares. Throws kUnsupported, listing the known ones, for one that is not registered.
  std::unique_ptr<Module> BuildWithDraft(const ModelConfig& target, const std::optional<ModelConfig>& draft,
                                         const ParallelConfig& parallel, const WeightsMapper& names = {}) const;

 private:
  struct Family {
    ModelFactory build;
    std::string limits;
  };
  using Drafts = std::map<std::string, DraftFactory>;
  const std::pair<const std::string, Family>& FamilyOf(const ModelConfig& config) const;

  std::map<std::string, Family> families_;
  Drafts draft_layers_, draft_models_;
};

}  // namespace layercast
