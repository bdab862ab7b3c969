// The draft model that speculates for a target model: a second module tree, in the same version and the same commit.
// Families build one for the draft layers in the target's checkpoint (MTP), or for a checkpoint of its own (EAGLE).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "layercast/dtype.h"
#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/module.h"
#include "layercast/model/weights_mapper.h"
#include "layercast/parallel.h"

namespace layercast {

// The child of the target's root that is a draft model's tree, so that no two tensors have one name: the weight of
// "layers.0.mlp.down_proj" in that tree is served as "draft.layers.0.mlp.down_proj.weight".
inline constexpr const char* kDraftRoot = "draft";
inline constexpr const char* kDraftPrefix = "draft.";  // what the names of a draft model's tensors begin with

// Resource.
struct DraftModel {
  std::unique_ptr<Module> tree;  // what lies at kDraftRoot
  WeightsMapper names;           // maps what checkpoints call its tensors to names below kDraftRoot
};

// Builds a draft model on meta, its parameters in `dtype`, which is the target's. `draft` is the draft model's own
// configuration, or, if its layers are in the target's checkpoint, the target's.
using DraftFactory = std::function<DraftModel(const ModelConfig& target, const ModelConfig& draft,
                                              const ParallelConfig& parallel, DType dtype)>;

// A layer of a draft model that has no parameters of its own: it shares those of the target's layer at `path`
// ("model.embed_tokens"). A tensor that comes for it must hold the same bytes, and is not sent again. Resource, as
// every Module.
class LAYERCAST_PUBLIC SharedWithTarget final : public Module {
 public:
  SharedWithTarget(std::string class_name, std::string path) : Module(std::move(class_name)), path_(std::move(path)) {}
  std::string_view tied_to() const override { return path_; }

 private:
  std::string path_;
};

}  // namespace layercast
