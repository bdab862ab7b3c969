// The module tree, built on meta: names, shapes and sharding of one rank of a model, and nothing computed.
// A model family builds it; the load plan and `load_weights` read it.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/parameter.h"
#include "layercast/model/placement.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// A checkpoint's name for a part of a fused layer: {"q_proj", "q"}. The parent routes `q_proj.<rest>` to the
// layer that declares it, with that shard id.
struct ShardName {
  std::string_view checkpoint_name;
  std::string_view shard_id;
};

class Module;

// What the tree says of one checkpoint tensor.
struct LAYERCAST_PUBLIC Resolution {
  const Module* owner = nullptr;    // the layer that takes it; null when skipped
  std::string owner_path;           // "model.layers.0.self_attn.qkv_proj"
  std::vector<PlacedPiece> pieces;  // empty with an owner: another rank's part
  std::string skip_rule;            // the rule that skips it, when it is skipped
  std::string alias_of;             // the tied tensor it stands for ("model.embed_tokens.weight"), if it does
};

// Resource; one thread at a time. Owners are the leaf modules that have parameters: the *layers*.
class LAYERCAST_PUBLIC Module {
 public:
  explicit Module(std::string class_name) : class_name_(std::move(class_name)) {}
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& class_name() const { return class_name_; }  // "QKVParallelLinear"
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<Parameter> parameters() { return parameters_; }

  // The one question an owner answers, for `load_weights` and for the load plan alike: where does the tensor
  // `spec`, called `name` within this module ("weight"), come to lie? Throws kInvalidArgument, saying what was
  // expected and what came, when it does not fit.
  virtual std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                         const TensorSpec& spec) const;
  // Names under which checkpoints hold parts of this (fused) layer.
  virtual std::span<const ShardName> shard_names() const { return {}; }
  // Elements of a parameter that no checkpoint tensor fills and that are zero: vocabulary padding.
  virtual std::vector<Box> Padding(std::uint32_t parameter) const;

  // Finds the owner by whole path segments and asks it. Throws kNotFound for a name that nothing takes.
  Resolution Resolve(const TensorSpec& spec) const;

  // The recursive door that model authors know: every tensor of the stream is routed to its owner and copied
  // into its parameter's storage (materialized on host memory if it is on meta), cast to the parameter's dtype.
  // Returns the names that were loaded.
  std::set<std::string> load_weights(WeightsIterator& weights);

 protected:
  Module& AddChild(std::string name, std::unique_ptr<Module> child);
  Parameter& AddParameter(Parameter parameter);

 private:
  std::string class_name_;
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  std::vector<Parameter> parameters_;
};

}  // namespace layercast
