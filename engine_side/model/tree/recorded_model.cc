#include "layercast/recorded_model.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/utf8.h"
#include "src/tensor/adapter_tensor_name.h"

namespace layercast {
namespace {

[[noreturn]] void RefuseRecorded(const std::string& what, ErrorCode code = ErrorCode::kInvalidArgument) {
  throw Error(code, "a recorded load: " + what);
}

std::string ToString(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.rank; ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(box.begin[d]) + " to " + std::to_string(box.begin[d] + box.extent[d]);
  }
  return text + "]";
}

void CheckWithin(const Box& box, const TensorSpec& spec) {
  bool fits = box.rank == spec.shape.size();
  for (std::size_t d = 0; fits && d < box.rank; ++d) {
    fits = box.begin[d] >= 0 && box.extent[d] >= 0 && box.extent[d] <= spec.shape[d] - box.begin[d];
  }
  if (!fits) RefuseRecorded(Quote(spec.name) + ": expected a box of " + Describe(spec) + ", got " + ToString(box));
}

// A node of the tree, which may have parameters. Resource, as every Module.
class RecordedLayer : public Module {
 public:
  explicit RecordedLayer(std::string class_name = "RecordedLayer") : Module(std::move(class_name)) {}

  // Returns the index of the parameter.
  std::uint32_t Add(const RecordedParameter& recorded, std::string name) {
    Parameter parameter{.spec = {std::move(name), recorded.spec.dtype, recorded.spec.shape}, .storage = {}};
    parameter.quantize = recorded.quantize;
    AddParameter(std::move(parameter));
    for (const Box& box : recorded.zeros) CheckWithin(box, recorded.spec);
    zeros_.push_back(recorded.zeros);
    expected_.emplace_back();
    return static_cast<std::uint32_t>(parameters().size() - 1);
  }
  void Expect(std::uint32_t parameter, ExpectedTensor tensor) { expected_[parameter].push_back(std::move(tensor)); }
  RecordedLayer& Child(const std::string& name) {
    for (const auto& [known, child] : children()) {
      if (known == name) return static_cast<RecordedLayer&>(*child);
    }
    return static_cast<RecordedLayer&>(AddChild(name, std::make_unique<RecordedLayer>()));
  }

  std::vector<Box> Padding(std::uint32_t parameter) const override { return zeros_[parameter]; }
  std::vector<ExpectedTensor> Expected(std::uint32_t parameter, std::string_view /*path*/) const override {
    return expected_[parameter];
  }

 private:
  std::vector<std::vector<Box>> zeros_;                // by parameter
  std::vector<std::vector<ExpectedTensor>> expected_;  // by parameter
};

// The root, which answers for every tensor by its recorded name. Resource, as every Module.
class RecordedModel final : public RecordedLayer {
 public:
  explicit RecordedModel(Recording recording) : RecordedLayer("RecordedModel") {
    std::vector<Target> targets;
    for (RecordedParameter& parameter : recording.parameters) targets.push_back(AddTarget(parameter));
    for (const TensorSpec& source : recording.sources) {
      if (!taken_.try_emplace(source.name, Taken{source.shape, {}}).second) {
        RefuseRecorded("expected each tensor once, got " + Quote(source.name) + " twice");
      }
    }
    for (const RecordedCopy& copy : recording.copies) AddCopy(recording, targets, copy);
    for (const TensorSpec& source : recording.sources) NoteAxes(source, taken_.at(source.name));
  }

  Resolution Resolve(const TensorSpec& spec) const override {
    const auto found = taken_.find(spec.name);
    if (found == taken_.end()) {
      if (const auto of = AdapterTensorName::Of(spec.name)) {
        Resolution skipped;
        skipped.skip_rule = of->SkipRule();
        return skipped;
      }
      throw Error(ErrorCode::kNotFound, "There is no tensor named " + Quote(spec.name) + " among the " +
                                            std::to_string(taken_.size()) + " that the load was recorded with");
    }
    const Taken& taken = found->second;
    Resolution resolution;
    if (taken.owner == nullptr) {
      resolution.skip_rule = "the recorded loader takes nothing of it";
      return resolution;
    }
    try {
      for (const PlacedPiece& piece : taken.pieces) {
        CheckFits(spec, taken.owner->parameters()[piece.parameter].spec.dtype, taken.shape);
      }
    } catch (const Error& error) {
      throw Error(error.code(), "layer " + taken.path + ": " + Quote(spec.name) + " " + error.what());
    }
    resolution.owner = taken.owner;
    resolution.owner_path = taken.path;
    resolution.pieces = taken.pieces;
    return resolution;
  }

 private:
  struct Target {
    RecordedLayer* layer = nullptr;
    std::string path;  // of the layer
    std::uint32_t index = 0;
  };
  // Where a source goes. Without an owner, nowhere.
  struct Taken {
    Shape shape;
    std::vector<PlacedPiece> pieces;
    RecordedLayer* owner = nullptr;
    std::string path{};
  };

  Target AddTarget(const RecordedParameter& parameter) {
    const std::string_view path = ParentPath(parameter.spec.name);
    RecordedLayer* layer = this;
    for (std::string_view rest = path; !rest.empty();) {
      const std::size_t dot = rest.find('.');
      layer = &layer->Child(std::string(rest.substr(0, dot)));
      rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot + 1);
    }
    return {layer, std::string(path), layer->Add(parameter, std::string(LastName(parameter.spec.name)))};
  }

  void AddCopy(const Recording& recording, std::span<const Target> targets, const RecordedCopy& copy) {
    if (copy.source >= recording.sources.size() || copy.parameter >= targets.size()) {
      RefuseRecorded("expected one of " + std::to_string(recording.sources.size()) + " tensors and " +
                     std::to_string(targets.size()) + " parameters, got " + std::to_string(copy.source) + " and " +
                     std::to_string(copy.parameter));
    }
    const TensorSpec& source = recording.sources[copy.source];
    const TensorSpec& parameter = recording.parameters[copy.parameter].spec;
    CheckWithin(copy.from, source);
    CheckWithin(copy.to, parameter);
    if (copy.from.num_elements() != copy.to.num_elements()) {
      RefuseRecorded(Quote(source.name) + " into " + Quote(parameter.name) +
                     ": expected boxes of as many elements, got " + ToString(copy.from) + " and " + ToString(copy.to));
    }
    const Target& target = targets[copy.parameter];
    Taken& taken = taken_.at(source.name);
    if (taken.owner != nullptr && taken.owner != target.layer) {
      RefuseRecorded(Quote(source.name) + " goes into layers " + taken.path + " and " + target.path +
                         ": expected parameters of one layer",
                     ErrorCode::kUnsupported);
    }
    taken.owner = target.layer;
    taken.path = target.path;
    taken.pieces.push_back({.parameter = target.index,
                            .source = copy.from,
                            .destination = copy.to,
                            .shard_id = {},
                            .order = {.transposed = copy.transposed}});
    target.layer->Expect(target.index, {source.name, copy.to});
  }

  // A quantized parameter that gets a part of the source alone is sharded: by columns if its rows are cut.
  static void NoteAxes(const TensorSpec& source, const Taken& taken) {
    if (taken.owner == nullptr) return;
    std::map<std::uint32_t, std::int64_t> elements;  // by parameter
    for (const PlacedPiece& piece : taken.pieces) elements[piece.parameter] += piece.source.num_elements();
    for (const PlacedPiece& piece : taken.pieces) {
      Parameter& parameter = taken.owner->parameters()[piece.parameter];
      const std::size_t rank = source.shape.size();
      if (rank < 2 || !parameter.quantize || elements[piece.parameter] == source.num_elements()) continue;
      const std::size_t columns = rank - (piece.order.transposed ? 2 : 1);
      const bool cut = piece.source.extent[columns] != source.shape[columns];
      if (parameter.shard_axis != ShardAxis::kCols) parameter.shard_axis = cut ? ShardAxis::kCols : ShardAxis::kRows;
    }
  }

  std::unordered_map<std::string, Taken> taken_;  // by source
};

}  // namespace

std::unique_ptr<Module> TreeOf(Recording recording) { return std::make_unique<RecordedModel>(std::move(recording)); }

}  // namespace layercast
