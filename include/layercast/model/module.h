// The module tree, built on meta: names, shapes and sharding of one rank of a model, and nothing computed.
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
#include "layercast/model/derived_tensor.h"
#include "layercast/model/parameter.h"
#include "layercast/model/placement.h"
#include "layercast/model/source_transforms.h"
#include "layercast/model/weights_mapper.h"
#include "layercast/parallel.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// A checkpoint's name for a part of a fused layer: {"q_proj", "q"}; or, with an empty shard id, another name for a
// module. The parent routes `q_proj.<rest>` to the module that declares it, with that shard id. Both views live as long
// as that module.
struct ShardName {
  std::string_view checkpoint_name;
  std::string_view shard_id;
};

// Checkpoint tensors whose name ends with these whole path segments are skipped, for this reason.
struct SkipRule {
  std::string_view suffix;  // "rotary_emb.inv_freq"
  std::string_view rule;    // "rotary_emb.inv_freq is computed, not loaded"
};

// A checkpoint tensor, by its full name, and the box of a parameter that it fills.
struct ExpectedTensor {
  std::string name;
  Box destination;
};

// The heads of attention of a whole model, as its config.json says. Value.
struct ModelHeads {
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
};

class Module;

// What the tree says of one checkpoint tensor.
struct LAYERCAST_PUBLIC Resolution {
  const Module* owner = nullptr;    // the layer that takes it; null when skipped
  std::string owner_path;           // "model.layers.0.self_attn.qkv_proj"
  std::vector<PlacedPiece> pieces;  // empty with an owner: another rank's part
  std::string tree_name;            // its name after mapping; empty: mapping changed nothing
  std::string skip_rule;            // the rule that skips it, when it is skipped
  std::string alias_of;             // the tied tensor it stands for ("model.embed_tokens.weight"), if it does
  std::string_view held_by;         // the other ranks that hold it ("pipeline stage 1"); lives as long as the tree
};

// What the tree says of one of the tensors that transforms make of a checkpoint tensor.
struct SourceResolution {
  SourceView view;  // what it is of the checkpoint tensor: the source boxes of `to` are of `view.read_as`
  Resolution to;
};

// Resource; one thread at a time. Owners are the modules that have parameters: the *layers*.
class LAYERCAST_PUBLIC Module {
 public:
  explicit Module(std::string class_name) : class_name_(std::move(class_name)) {}
  virtual ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& class_name() const { return class_name_; }  // "QKVParallelLinear"
  const std::vector<std::pair<std::string, std::unique_ptr<Module>>>& children() const { return children_; }
  const Module* FindChild(std::string_view name) const;  // null: none
  // The module at `path` below this one, by the names of children ("model.layers.0.mlp"); this one for an empty path.
  // Null: none.
  Module* FindModule(std::string_view path);
  std::span<const Parameter> parameters() const { return parameters_; }
  std::span<Parameter> parameters() { return parameters_; }
  // What this layer computes from its parameters, once for each version, after the last of them has come.
  std::span<const DerivedTensor> derived() const { return derived_; }

  // The one question an owner answers, for `load_weights` and for the load plan alike: where does the tensor
  // `spec`, called `name` within this module ("weight"), come to lie? The default: all of it in all of the
  // parameter of that name. Throws kNotFound for a name it has no parameter for, kInvalidArgument ("expected
  // [8, 4] bf16, got [8, 2] bf16"; the caller puts layer and tensor before it) when the tensor does not fit.
  // A piece of no elements says: a part of that parameter, but not of this rank's.
  virtual std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                         const TensorSpec& spec) const;
  // Names under which checkpoints hold parts of this (fused) layer.
  virtual std::span<const ShardName> shard_names() const { return {}; }
  // Elements of a parameter that no checkpoint tensor fills and that are zero: vocabulary padding.
  virtual std::vector<Box> Padding(std::uint32_t parameter) const;
  // The tensors that together fill a parameter of this layer, which lies at `path`, as checkpoints usually name them.
  // Errors name missing tensors by it. The default: one tensor, of the parameter's own name.
  virtual std::vector<ExpectedTensor> Expected(std::uint32_t parameter, std::string_view path) const;
  // What this module and those below it skip.
  virtual std::span<const SkipRule> skip_rules() const { return {}; }
  // Path, from the root, of the layer whose parameters this one shares (a tied lm_head, which has none itself).
  virtual std::string_view tied_to() const { return {}; }
  // The other ranks that hold this module and all below it ("pipeline stage 1"); this rank knows nothing more of it.
  virtual std::string_view held_by() const { return {}; }

  // What checkpoints call tensors -> the names below this module; asked of the root alone. A host program whose
  // trainer has names of its own sets `its rules | mapper()`.
  void SetMapper(WeightsMapper mapper) { mapper_ = std::move(mapper); }
  const WeightsMapper& mapper() const { return mapper_; }
  // How tensors are read before their names are mapped; asked of the root alone.
  void SetTransforms(SourceTransforms transforms) { transforms_ = std::move(transforms); }
  const SourceTransforms& transforms() const { return transforms_; }
  // Whose part of the model this tree is, where ModelRegistry has built it; asked of the root alone. A receiver of
  // another rank refuses it.
  void SetParallel(ParallelConfig parallel) { parallel_ = std::move(parallel); }
  const std::optional<ParallelConfig>& parallel() const { return parallel_; }
  // The model's heads, where ModelRegistry has built it; asked of the root alone. A checkpoint whose files say other
  // numbers (`gguf`, `mistral`) is refused: its rows were put into order by those.
  void SetHeads(ModelHeads heads) { heads_ = heads; }
  const std::optional<ModelHeads>& heads() const { return heads_; }

  // Maps the name, finds the owner by whole path segments and asks it. Throws kNotFound for a name that nothing takes.
  Resolution Resolve(const TensorSpec& spec) const;
  // Resolve, for each tensor that the transforms make of a checkpoint tensor (the tensor itself, if no transform
  // applies). They may belong to different layers. Throws kUnsupported for parts of a tied tensor.
  std::vector<SourceResolution> ResolveSource(const TensorSpec& spec) const;

  // load_weights as vLLM's models have it: every tensor of the stream is routed to its owner and copied into its
  // parameter's storage (materialized on host memory if it is on meta), cast to the parameter's dtype.
  // Returns the names that were loaded. A stream may hold any part of the model (a bucket), in any order; the
  // same name twice in one stream, or tied tensors with different bytes, are errors.
  std::set<std::string> load_weights(WeightsIterator& weights);

 protected:
  // Children and parameters keep the order in which they were added, which is the load plan's. Throws on a name that is
  // taken.
  Module& AddChild(std::string name, std::unique_ptr<Module> child);
  Parameter& AddParameter(Parameter parameter) { return InsertParameter(parameters_.size(), std::move(parameter)); }
  // Before the parameter that is number `index` now, for layers whose parameters depend on what a checkpoint holds.
  Parameter& InsertParameter(std::size_t index, Parameter parameter);
  void RemoveParameter(std::size_t index) {
    parameters_.erase(parameters_.begin() + static_cast<std::ptrdiff_t>(index));
  }
  // Throws on a name that is taken, and on a source that is no parameter.
  void AddDerived(DerivedTensor derived);
  // Index of the parameter called `name`; throws kNotFound.
  std::uint32_t ParameterIndex(std::string_view name) const;

 private:
  // Where a path segment leads: to the child that has this name, or that declares it as a shard name.
  struct Route {
    std::string name;
    const Module* module = nullptr;
    std::uint32_t child = 0;  // its index among the children
    bool declared = false;    // by the child's shard_names; a child's own name comes first
    std::string_view shard_id{};
  };
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct Walk;

  void CheckName(const std::string& name) const;
  void AddRoute(Route route);
  const Route* FindRoute(std::string_view name) const;  // null: none
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
  std::vector<std::pair<std::string, std::unique_ptr<Module>>> children_;
  std::vector<Parameter> parameters_;
  std::vector<DerivedTensor> derived_;
  std::vector<Route> routes_;
  // Indices into routes_, once they are too many to be looked through: the layers of a model.
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> route_of_;
};

}  // namespace layercast
