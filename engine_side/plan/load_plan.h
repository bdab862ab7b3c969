// The load plan: where every tensor of one manifest goes on one rank, by layer. Made once from the module tree,
// on meta; replayed for every version of the same layout. Immutable value.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/plan/merged_version.h"
#include "engine_side/plan/plan_problems.h"
#include "layercast/model/module.h"
#include "layercast/version.h"
#include "src/tensor/manifest.h"

namespace layercast {

struct Placement {
  std::uint32_t tensor = 0;     // index in the manifest
  std::uint32_t parameter = 0;  // index in LoadPlan::parameters()
  Box source;                   // of the tensor
  Box destination;              // of the parameter: as many elements
  std::string_view shard_id;    // lives as long as the module tree
  ElementOrder order{};         // of the source's elements in the destination
  std::uint32_t part = 0;       // of the tensor, where publishers have it in parts: the one that the source lies in
  bool reciprocal = false;      // what lands is one divided by each element
  bool shared = false;          // other parts of the layer fill the same elements: what lands is the largest
};

struct PlannedParameter {
  std::uint32_t layer = 0;  // index in LoadPlan::layers()
  TensorSpec spec;          // full name ("model.layers.0.self_attn.qkv_proj.weight"), this rank's fused shape
  ShardAxis shard_axis = ShardAxis::kNone;
  bool quantize = false;
  std::vector<Box> padding;  // zero, whatever the checkpoint says
  Sign sign = Sign::kAny;
  std::optional<float> fallback{};      // what every element is: nothing is there for its layer
  const QuantizedForm* form = nullptr;  // of a weight, as checkpoints may hold it; lives as long as the module tree
  std::uint32_t first_placement = 0, num_placements = 0;
};

struct PlannedLayer {
  std::string path;        // "model.layers.0.self_attn.qkv_proj"
  std::string class_name;  // "QKVParallelLinear"
  std::uint32_t first_parameter = 0, num_parameters = 0;
  std::uint32_t first_placement = 0, num_placements = 0;
  std::span<const DerivedTensor> derived{};  // from its parameters; lives as long as the module tree
  // Layers that tensors have parts of in common: no order of whole tensors fills one of them after the other. Called
  // by the first of them, mostly the layer alone.
  std::uint32_t group = 0;
  bool kept = false;  // no tensor of a partial version is of it: what is served of it stays
};

struct SkippedTensor {
  std::uint32_t tensor = 0;
  std::string rule;  // "rotary_emb.inv_freq is computed, not loaded"
};

// A tensor that stands for another one (a tied lm_head): not placed, but must hold the same bytes.
struct AliasedTensor {
  std::uint32_t tensor = 0;
  std::uint32_t owner = 0;  // index of the tensor that is placed
};

// A tensor of a part of the model that other ranks hold: not sent, not buffered, not held here.
struct ElsewhereTensor {
  std::uint32_t tensor = 0;
  std::string_view held_by;  // "pipeline stage 1"; lives as long as the module tree
};

// A tensor that is another one to the tree, or several, but for the order of its last two axes.
struct ReadTensor {
  // What it is to the tree, over all ranks: SourceView's.
  struct Part {
    Box within;
    std::vector<std::vector<std::uint8_t>> axes;
    bool transposed = false;
  };

  Shape shape;  // that the placements' source boxes are of; as many elements
  std::vector<Part> parts;
  bool fills_one_parameter{};  // all of it

  // The part that the source box of a placement lies in.
  const Part& PartOf(const Box& source) const;
};

struct CheckedPlan;

class LoadPlan {
 public:
  // Every parameter must be covered exactly once. `partial`: but for those of layers that no tensor at all is of, which
  // are kept. Throws kInvalidArgument listing every missing, repeated, unexpected and wrongly shaped tensor. Takes time
  // linear in the number of tensors.
  // `parts`: of the manifest's tensors; placements are cut at their borders.
  static LoadPlan Build(const Module& model, const Manifest& manifest, bool partial = false, HeldParts parts = {});
  // The same, with what is wrong beside the placements that could be made.
  static CheckedPlan Check(const Module& model, const Manifest& manifest, bool partial = false, HeldParts parts = {});

  // The layers and parameters of a model alone, with no tensors that go there.
  static LoadPlan WithoutTensors(const Module& model);
  // Every parameter from a tensor of its own name and shape, all of it: `manifest` holds the parameters of
  // WithoutTensors, in their order.
  static LoadPlan OfItsParameters(const Module& model, const Manifest& manifest);

  // In the tree's order: the order that publishers send in.
  const std::vector<PlannedLayer>& layers() const { return layers_; }
  const std::vector<PlannedParameter>& parameters() const { return parameters_; }
  std::span<const PlannedParameter> ParametersOf(const PlannedLayer& layer) const {
    return std::span(parameters_).subspan(layer.first_parameter, layer.num_parameters);
  }
  const std::vector<Placement>& placements() const { return placements_; }  // by layer, then by destination
  const std::vector<SkippedTensor>& skipped() const { return skipped_; }
  const std::vector<AliasedTensor>& aliases() const { return aliases_; }
  const std::vector<ElsewhereTensor>& elsewhere() const { return elsewhere_; }
  const std::vector<std::uint32_t>& cast_tensors() const { return cast_tensors_; }  // dtype differs from the model's
  // The placements of a tensor, as indices into placements().
  std::span<const std::uint32_t> PlacementsOf(std::uint32_t tensor) const;
  // Weight rules that touch none of the tensors of a whole version, as they describe themselves.
  const std::vector<std::string>& unused_rules() const { return unused_rules_; }
  const HeldParts& parts() const { return parts_; }
  // Of a tensor that is held in more than one part; else empty.
  std::span<const HeldPart> CutsOf(std::uint32_t tensor) const {
    if (parts_.empty() || parts_[tensor].size() == 1) return {};
    return parts_[tensor];
  }
  // Null: the tensor is read as it is, or the other way round at most.
  const ReadTensor* FindRead(std::uint32_t tensor) const {
    const auto found = read_.find(tensor);
    return found == read_.end() ? nullptr : &found->second;
  }
  // The shape that source boxes of a tensor of `manifest` are of.
  const Shape& SourceShape(const Manifest& manifest, std::uint32_t tensor) const {
    const ReadTensor* read = FindRead(tensor);
    return read == nullptr ? manifest.entry(tensor).spec.shape : read->shape;
  }
  // Those that fill a layer, and a parameter.
  std::span<const Placement> PlacementsInto(const PlannedLayer& layer) const {
    return std::span(placements_).subspan(layer.first_placement, layer.num_placements);
  }
  std::span<const Placement> PlacementsInto(const PlannedParameter& parameter) const {
    return std::span(placements_).subspan(parameter.first_placement, parameter.num_placements);
  }

  bool partial() const { return partial_; }
  const Digest& layout_digest() const { return layout_digest_; }  // of the manifest it was made for
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
  std::vector<std::uint32_t> tensor_offsets_;     // where each tensor's group begins; one more at the end
  Digest layout_digest_;
  std::uint64_t placed_bytes_ = 0;
  bool partial_ = false;
};

struct CheckedPlan {
  LoadPlan plan;
  PlanProblems problems;
};

}  // namespace layercast
