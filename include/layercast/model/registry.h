// Which model family builds the tree for which architecture. A host program makes a registry, and may add families of
// its own.
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
  // A registry with the families of this build, which docs/models.md lists.
  static ModelRegistry Builtin();

  // `architecture` is the name in config.json's `architectures`. `limits` says in words what the family leaves out.
  // Throws kInvalidArgument if the architecture is registered already.
  void Register(std::string architecture, ModelFactory factory, std::string limits = {});
  // RegisterDraftLayers is for draft layers in the target's own checkpoint (`draft` is empty in BuildWithDraft), and
  // `architecture` is the target's. RegisterDraftModel is for a draft model with a checkpoint of its own, and
  // `architecture` is the draft model's. Both throw kInvalidArgument if it is registered already.
  void RegisterDraftLayers(std::string architecture, DraftFactory factory);
  void RegisterDraftModel(std::string architecture, DraftFactory factory);
  std::vector<std::string> architectures() const;                    // sorted
  const std::string& limits(const std::string& architecture) const;  // of an architecture that is registered

  // Which of the configuration's architectures Build takes. Throws as Build does.
  const std::string& FamilyNameOf(const ModelConfig& config) const { return FamilyOf(config.architectures).first; }
  // The configuration of a model that Build can build. An architecture that is not registered is refused, as Build
  // refuses it, before any other field is read: what another family's file lacks of the usual fields says nothing.
  ModelConfig ConfigOf(const ModelDescription& description) const;
  // Likewise, of a draft model with a checkpoint of its own that BuildWithDraft can build.
  ModelConfig DraftConfigOf(const ModelDescription& draft) const;
  // Builds the tree of the first of the configuration's architectures that is registered, in the configuration's dtype.
  // `names` maps what the trainer calls tensors to what the family's checkpoints call them. Throws kUnsupported,
  // listing the registered architectures, if there is none, and kInvalidArgument on an invalid configuration.
  std::unique_ptr<Module> Build(const ModelConfig& config, const ParallelConfig& parallel,
                                const WeightsMapper& names = {}) const;
  std::unique_ptr<Module> Build(const ModelDescription& description, const ParallelConfig& parallel,
                                const WeightsMapper& names = {}) const;
  // Builds what Build does, with a second tree under kDraftRoot, for the draft model that speculates for it. If `draft`
  // is empty, that tree is of the draft layers in the target's own checkpoint (MTP); otherwise it is what `draft`
  // describes. In a pipeline, the last stage has it, and the embedding that it shares. Throws kUnsupported, listing the
  // registered ones, if its architecture is not registered.
  std::unique_ptr<Module> BuildWithDraft(const ModelConfig& target, const std::optional<ModelConfig>& draft,
                                         const ParallelConfig& parallel, const WeightsMapper& names = {}) const;

 private:
  struct Family {
    ModelFactory build;
    std::string limits;
  };
  using Drafts = std::map<std::string, DraftFactory>;
  const std::pair<const std::string, Family>& FamilyOf(const std::vector<std::string>& names) const;

  std::map<std::string, Family> families_;
  Drafts draft_layers_, draft_models_;
};

}  // namespace layercast
