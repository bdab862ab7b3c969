// The load plan: where every tensor of one manifest goes on one rank, by layer. It is made once, from the module tree
// on meta, and replayed for every version of the same layout. Immutable value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/plan/plan_problems.h"
#include "layercast/model/parameter.h"
#include "layercast/model/placement.h"
#include "layercast/version.h"
#include "src/tensor/manifest/manifest.h"
#include "src/tensor/parts/merged_version.h"

namespace layercast {

class Module;

struct Placement {
  std::uint32_t tensor = 0;     // index in the manifest
  std::uint32_t parameter = 0;  // index in LoadPlan::parameters()
  Box source;                   // box of the tensor
  Box destination;              // box of the parameter, of as many elements
  std::string_view shard_id;    // lives as long as the module tree
  ElementOrder order{};         // how the source's elements are ordered in the destination
  std::uint32_t part = 0;       // if publishers hold the tensor in parts, the part with the source
  bool reciprocal = false;      // the reciprocal of each element is stored
  bool shared = false;          // other parts of the layer fill the same elements; the largest is stored
};

struct PlannedParameter {
  std::uint32_t layer = 0;  // index in LoadPlan::layers()
  TensorSpec spec;          // full name ("model.layers.0.self_attn.qkv_proj.weight"), this rank's fused shape
  ShardAxis shard_axis = ShardAxis::kNone;
  bool quantize = false;
  std::vector<Box> padding;  // boxes that are zero, whatever the checkpoint holds
  Sign sign = Sign::kAny;
  std::optional<float> fallback{};      // value of every element if no tensor is there for the layer
  const QuantizedForm* form = nullptr;  // of a weight: see Parameter; lives as long as the tree
  std::uint32_t first_placement = 0, num_placements = 0;
};

struct PlannedLayer {
  std::string path;        // "model.layers.0.self_attn.qkv_proj"
  std::string class_name;  // "QKVParallelLinear"
  std::uint32_t first_parameter = 0, num_parameters = 0;
  std::uint32_t first_placement = 0, num_placements = 0;
  std::span<const DerivedTensor> derived{};  // made from its parameters; lives as long as the module tree
  // Layers are in one group if some tensor has parts of several of them, so that no order of whole tensors could fill
  // the layers one after another. `group` is the index of the group's first layer. Most groups have one layer.
  std::uint32_t group = 0;
  bool kept = false;  // a partial version has no tensor for it: it goes on being served as it is
};

struct SkippedTensor {
  std::uint32_t tensor = 0;
  std::string rule;  // "rotary_emb.inv_freq is computed, not loaded"
};

// A tensor that is tied to another one, such as a tied lm_head. It is not placed, but must hold the same bytes.
struct AliasedTensor {
  std::uint32_t tensor = 0;
  std::uint32_t owner = 0;  // index of the tensor that is placed
};

// A tensor of a part of the model that other ranks hold: it is not sent to this rank, buffered or held here.
struct ElsewhereTensor {
  std::uint32_t tensor = 0;
  std::string_view held_by;  // "pipeline stage 1"; lives as long as the module tree
};

// A tensor that transforms turn into a different tensor, or into several, for the tree. A mere swap of its last two
// axes does not count.
struct ReadTensor {
  // One of the tensors that the tree sees, whole, whatever this rank holds of it. See SourceView for the fields.
  struct Part {
    Box within;
    std::vector<std::vector<std::uint8_t>> axes;
    bool transposed = false;
  };

  Shape shape;  // shape that the placements' source boxes refer to; it has as many elements as the tensor
  std::vector<Part> parts;
  bool fills_one_parameter{};  // all of the tensor goes into one parameter

  // The part that the source box of a placement lies in.
  const Part& PartOf(const Box& source) const;
};

struct CheckedPlan;

class LoadPlan {
 public:
  // Builds the plan. Every parameter must be covered exactly once. If `partial`, layers for which no tensor at all is
  // there are exempt: they are kept. `parts` says in which parts publishers hold the manifest's tensors; placements are
  // cut at the parts' borders. Throws kInvalidArgument counting the missing, repeated, unexpected and wrongly shaped
  // tensors and naming the first ones (PlanProblems::Summary). Takes time linear in the number of tensors.
  static LoadPlan Build(const Module& model, const Manifest& manifest, bool partial = false, HeldParts parts = {});
  // Like Build, but returns every problem, beside the placements that could be made, instead of throwing.
  static CheckedPlan Check(const Module& model, const Manifest& manifest, bool partial = false, HeldParts parts = {});

  // A plan with the layers and parameters of a model, but no tensors and no placements.
  static LoadPlan WithoutTensors(const Module& model);
  // A plan that fills every parameter from one whole tensor of the parameter's name and shape. `manifest` must hold the
  // parameters of WithoutTensors.
  static LoadPlan OfItsParameters(const Module& model, const Manifest& manifest);
  // The same for kernel tensors of the model. Nothing is made of them, so that each is the parameter of a layer of its
  // own, and whole as soon as it has come.
  static LoadPlan OfKernelTensors(const Module& model, const Manifest& manifest, std::span<const TensorSpec> tensors);

  // In the order of the module tree, which is the order in which publishers send.
  const std::vector<PlannedLayer>& layers() const { return layers_; }
  const std::vector<PlannedParameter>& parameters() const { return parameters_; }
  std::span<const PlannedParameter> ParametersOf(const PlannedLayer& layer) const {
    return std::span(parameters_).subspan(layer.first_parameter, layer.num_parameters);
  }
  const std::vector<Placement>& placements() const { return placements_; }  // by layer, then by destination
  const std::vector<SkippedTensor>& skipped() const { return skipped_; }
  const std::vector<AliasedTensor>& aliases() const { return aliases_; }
  const std::vector<ElsewhereTensor>& elsewhere() const { return elsewhere_; }
  const std::vector<std::uint32_t>& cast_tensors() const { return cast_tensors_; }  // dtype is not the model's
  // The placements of a tensor, as indices into placements().
  std::span<const std::uint32_t> PlacementsOf(std::uint32_t tensor) const;
  // Weight rules that touch no tensor of the version, in the words of their Describe. Empty for a partial version.
  const std::vector<std::string>& unused_rules() const { return unused_rules_; }
  const HeldParts& parts() const { return parts_; }
  // The parts of a tensor that publishers hold in more than one part; empty for any other tensor.
  std::span<const HeldPart> CutsOf(std::uint32_t tensor) const {
    if (parts_.empty() || parts_[tensor].size() == 1) return {};
    return parts_[tensor];
  }
  // How the tensor is read. Null if it is read as it is, apart from a swap of its last two axes.
  const ReadTensor* FindRead(std::uint32_t tensor) const {
    const auto found = read_.find(tensor);
    return found == read_.end() ? nullptr : &found->second;
  }
  // The shape that the source boxes of a tensor of `manifest` refer to.
  const Shape& SourceShape(const Manifest& manifest, std::uint32_t tensor) const {
    const ReadTensor* read = FindRead(tensor);
    return read == nullptr ? manifest.entry(tensor).spec.shape : read->shape;
  }
  // The placements that fill a layer, or a parameter.
  std::span<const Placement> PlacementsInto(const PlannedLayer& layer) const {
    return std::span(placements_).subspan(layer.first_placement, layer.num_placements);
  }
  std::span<const Placement> PlacementsInto(const PlannedParameter& parameter) const {
    return std::span(placements_).subspan(parameter.first_placement, parameter.num_placements);
  }

  bool partial() const { return partial_; }
  const Digest& layout_digest() const { return layout_digest_; }  // of the manifest that the plan was made for
  std::uint64_t placed_bytes() const { return placed_bytes_; }    // source bytes that this rank keeps

 private:
  class Builder;

  std::vector<PlannedLayer> layers_;
  std::vector<PlannedParameter> parameters_;
  std::vector<Placement> placements_;
  std::vector<SkippedTensor> skipped_;
  std::vector<AliasedTensor> aliases_;
  std::vector<ElsewhereTensor> elsewhere_;
  std::vector<std::uint32_t> cast_tensors_;
  std::map<std::uint32_t, ReadTensor> read_;  // by tensor
  std::vector<std::string> unused_rules_;
  HeldParts parts_;
  std::vector<std::uint32_t> tensor_placements_;  // placement indices, grouped by tensor
  std::vector<std::uint32_t> tensor_offsets_;     // where each tensor's group begins, and the end of the last one
  Digest layout_digest_;
  std::uint64_t placed_bytes_ = 0;
  bool partial_ = false;
};

struct CheckedPlan {
  LoadPlan plan;
  PlanProblems problems;
};

}  // namespace layercast
