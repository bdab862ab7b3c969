// The module tree, built on meta: names, shapes and sharding of one rank of a model. It computes nothing.
// A model family builds it; the load plan and `load_weights` read it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/parameter.h"
#include "layercast/model/placement.h"
#include "layercast/model/source_transforms.h"
#include "layercast/model/weights_mapper.h"
#include "layercast/parallel.h"
#include "layercast/weights_iterator.h"

namespace layercast {

class ServedConfig;

// A checkpoint's name for a part of a fused layer, {"q_proj", "q"}, or, with an empty shard id, another name for a
// module. The parent routes `q_proj.<rest>` to the child that declares the name, with that shard id. Value; both views
// live as long as the module that declares them.
struct ShardName {
  std::string_view checkpoint_name;
  std::string_view shard_id;
};

// Checkpoint tensors whose name ends with these whole path segments are skipped, for this reason. Value.
struct SkipRule {
  std::string_view suffix;  // "rotary_emb.inv_freq"
  std::string_view rule;    // "rotary_emb.inv_freq is computed, not loaded"
};

// A checkpoint tensor, by its full name, and the box of a parameter that it fills. Value.
struct ExpectedTensor {
  std::string name;
  Box destination;
};

// How many attention heads a whole model has, as its config.json says. Value.
struct ModelHeads {
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
};

class Module;

// Where the tree puts one checkpoint tensor. Value.
struct LAYERCAST_PUBLIC Resolution {
  const Module* owner = nullptr;    // the layer that takes it; null when skipped
  std::string owner_path;           // "model.layers.0.self_attn.qkv_proj"
  std::vector<PlacedPiece> pieces;  // if empty while there is an owner, another rank holds this part
  std::string tree_name;            // its name after mapping; empty: mapping changed nothing
  std::string skip_rule;            // the rule that skips it; empty: it is not skipped
  std::string alias_of;             // the tied tensor that it stands for ("model.embed_tokens.weight"); empty: none
  std::string_view held_by;         // the other ranks that hold it ("pipeline stage 1"); lives as long as the tree
};

// Where the tree puts one of the tensors that transforms make of a checkpoint tensor. Value.
struct SourceResolution {
  SourceView view;  // where it lies in the checkpoint tensor; the source boxes of `to` are boxes of `view.read_as`
  Resolution to;
};

// A node of the tree. Modules that have parameters are the *layers*, and the owners of tensors. Resource; one thread at
// a time.
class LAYERCAST_PUBLIC Module {
 public:
  explicit Module(std::string class_name) : class_name_(std::move(class_name)) {}
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& class_name() const { return class_name_; }  // "QKVParallelLinear"
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  const Module* FindChild(std::string_view name) const;  // null: there is none
  // The module at `path` below this one, by the names of children ("model.layers.0.mlp"), or this one for an empty
  // path. Null if there is none.
  Module* FindModule(std::string_view path) { return const_cast<Module*>(std::as_const(*this).FindModule(path)); }
  const Module* FindModule(std::string_view path) const;
  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<Parameter> parameters() { return parameters_; }
  // The tensors that are computed from this layer's parameters, once for each version, after the last parameter came.
  std::span<const DerivedTensor> derived() const { return derived_; }

  // The one question that an owner answers, for `load_weights` and for the load plan alike: where does the tensor
  // `spec`, called `name` within this module ("weight"), go? By default, all of it goes to all of the parameter of that
  // name. A piece without elements means that the tensor belongs to that parameter, but to another rank's part of it.
  // Throws kNotFound if no parameter takes the name, and kInvalidArgument if the tensor does not fit ("expected [8, 4]
  // bf16, got [8, 2] bf16"; the caller puts layer and tensor before it).
  virtual std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                         const TensorSpec& spec) const;
  // The names under which checkpoints hold parts of this (fused) layer.
  virtual std::span<const ShardName> shard_names() const { return {}; }
  // The boxes of a parameter that no checkpoint tensor fills and that are zero, such as vocabulary padding.
  virtual std::vector<Box> Padding(std::uint32_t parameter) const;
  // The checkpoint tensors, under their usual names, that together fill a parameter of this layer, which lies at
  // `path`. Errors name missing tensors so. By default it is one tensor, of the parameter's own name.
  virtual std::vector<ExpectedTensor> Expected(std::uint32_t parameter, std::string_view path) const;
  // The rules by which this module, and those below it, skip tensors.
  virtual std::span<const SkipRule> skip_rules() const { return {}; }
  // The path, from the root, of the layer whose parameters this one shares. A tied lm_head has such, and none itself.
  // Empty: it shares none.
  virtual std::string_view tied_to() const { return {}; }
  // The other ranks that hold this module and all below it ("pipeline stage 1"). This rank knows nothing more of it.
  // Empty: this rank holds it.
  virtual std::string_view held_by() const { return {}; }

  // The rules from what checkpoints call tensors to the names below this module. Asked of the root alone. A host
  // program whose trainer has names of its own sets `its rules | mapper()`.
  void SetMapper(WeightsMapper mapper) { mapper_ = std::move(mapper); }
  const WeightsMapper& mapper() const { return mapper_; }
  // How tensors are read before their names are mapped. Asked of the root alone.
  void SetTransforms(SourceTransforms transforms) { transforms_ = std::move(transforms); }
  const SourceTransforms& transforms() const { return transforms_; }
  // Which rank's part of the model this tree is. ModelRegistry sets it at the root. A receiver of another rank refuses
  // the tree.
  void SetParallel(ParallelConfig parallel) { parallel_ = std::move(parallel); }
  const std::optional<ParallelConfig>& parallel() const { return parallel_; }
  // The configuration that the tree was built from. ModelRegistry sets it at the root. Weights that say that they are
  // of another model are refused. Null: not known, and nothing is compared.
  void SetConfig(std::shared_ptr<const ServedConfig> config) { config_ = std::move(config); }
  const std::shared_ptr<const ServedConfig>& config() const { return config_; }
  // The whole model's heads. ModelRegistry sets them at the root. A checkpoint whose files name other numbers (`gguf`,
  // `mistral`) is refused, because the order of its rows depends on them.
  void SetHeads(ModelHeads heads) { heads_ = heads; }
  const std::optional<ModelHeads>& heads() const { return heads_; }

  // Maps the name, finds the owner by whole path segments and asks it. Throws kNotFound for a name that nothing takes.
  // Asked of the root alone.
  virtual Resolution Resolve(const TensorSpec& spec) const;
  // Calls Resolve for each tensor that the transforms make of a checkpoint tensor, or for the tensor itself if no
  // transform applies. The results may belong to different layers. Throws kUnsupported for parts of a tied tensor.
  std::vector<SourceResolution> ResolveSource(const TensorSpec& spec) const;

  // load_weights as vLLM's models have it: every tensor of the stream is routed to its owner and copied into its
  // parameter's storage, cast to the parameter's dtype. A parameter on meta is given host memory first. Returns the
  // names that were loaded. A stream may hold any part of the model (a bucket), in any order. The same name twice in
  // one stream, and tied tensors with different bytes, are errors.
  std::set<std::string> load_weights(WeightsIterator& weights);

 protected:
  // Children and parameters keep the order in which they were added, and the load plan has the same. Throws on a name
  // that is taken.
  Module& AddChild(std::string name, std::unique_ptr<Module> child);
  Parameter& AddParameter(Parameter parameter) { return InsertParameter(parameters_.size(), std::move(parameter)); }
  // Inserts before the parameter that is number `index` now, for layers whose parameters depend on what a checkpoint
  // holds.
  Parameter& InsertParameter(std::size_t index, Parameter parameter);
  void RemoveParameter(std::size_t index) {
    parameters_.erase(parameters_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  // Throws on a name that is taken, and on a source that is not a parameter of this layer.
  void AddDerived(DerivedTensor derived);
  // The index of the parameter called `name`. Throws kNotFound.
  std::uint32_t ParameterIndex(std::string_view name) const;

 private:
  // Where a path segment leads: to the child that has this name, or that declares it as a shard name.
  struct Route {
    std::string name;
    const Module* module = nullptr;
    std::uint32_t child = 0;  // its index among the children
    bool declared = false;    // in the child's shard_names; a child's own name takes precedence
    std::string_view shard_id{};
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct Walk;

  void CheckName(const std::string& name) const;
  void AddRoute(Route route);
  const Route* FindRoute(std::string_view name) const;  // null: there is none
  bool HasParameter(std::string_view name) const;
  // Descends from `walk.module` as far as routes lead, or until a rule skips the name.
  void Follow(Walk& walk) const;
  void PlaceInOwner(const Walk& walk, const TensorSpec& spec, Resolution& resolution) const;
  std::vector<std::string> NamesBelow() const;

  std::string class_name_;
  WeightsMapper mapper_;
  SourceTransforms transforms_;
  std::optional<ParallelConfig> parallel_;
  std::optional<ModelHeads> heads_;
  std::shared_ptr<const ServedConfig> config_;  // the other owners are those who compare with it
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  std::vector<Parameter> parameters_;
  std::vector<DerivedTensor> derived_;
  std::vector<Route> routes_;
  // Indices into routes_, once there are too many to be searched one by one, as for the layers of a model.
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> route_of_;
};

}  // namespace layercast
