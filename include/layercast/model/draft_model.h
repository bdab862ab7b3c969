// The draft model that speculates for a target: a second module tree, in the same version and the same commit. Families
// build one from the target checkpoint's own draft layers (MTP), or from a checkpoint of its own (EAGLE).
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

// Where the tree of a draft model lies below its target's root, so that no two tensors have one name: what is called
// "layers.0.mlp.down_proj" in it is served as "draft.layers.0.mlp.down_proj.weight".
inline constexpr const char* kDraftRoot = "draft";
inline constexpr const char* kDraftPrefix = "draft.";  // of its names

// Resource.
struct DraftModel {
  std::unique_ptr<Module> tree;  // what lies at kDraftRoot
  WeightsMapper names;           // what checkpoints call its tensors -> names below kDraftRoot
};

// Builds it on meta, in the target's dtype. `draft`: its own configuration; the target's for layers of the target's
// checkpoint.
using DraftFactory = std::function<DraftModel(const ModelConfig& target, const ModelConfig& draft,
                                              const ParallelConfig& parallel, DType dtype)>;

// A layer of a draft model that has no parameters of its own: it shares those of the target's layer at `path`
// ("model.embed_tokens"). A tensor that comes for it must hold the same bytes, and is not sent again.
class LAYERCAST_PUBLIC SharedWithTarget final : public Module {
 public:
  SharedWithTarget(std::string class_name, std::string path) : Module(std::move(class_name)), path_(std::move(path)) {}
  std::string_view tied_to() const override { return path_; }

 private:
  std::string path_;
};

}  // namespace layercast
