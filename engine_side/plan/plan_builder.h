// Fills a load plan: layers from the tree, then placements from the manifest, which it then orders. Used by
// LoadPlan::Check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/error.h"
#include "layercast/model/module.h"

namespace layercast {

// Resource; one thread only. Makes a single plan. The model and the manifest must outlive it.
class LoadPlan::Builder {
 public:
  Builder(const Module& model, const Manifest& manifest, HeldParts parts = {}) : model_(model), manifest_(manifest) {
    plan_.parts_ = std::move(parts);
  }

  CheckedPlan Run(bool partial);
  LoadPlan RunWithoutTensors();
  LoadPlan RunOfItsParameters();
  LoadPlan RunOfKernelTensors(std::span<const TensorSpec> tensors);

 private:
  void AddLayers(const Module& module, std::string& path);
  void AddLayer(const Module& module, const std::string& path);
  void PlaceTensor(std::uint32_t tensor);
  template <class Place>
  void OrRefuse(std::uint32_t tensor, const Place& place);
  void AddRefused(const TensorSpec& spec, const Error& error);
  void PlaceResolved(std::uint32_t tensor, Resolution to);
  void PlaceParts(std::uint32_t tensor, std::vector<SourceResolution> parts);
  void NoteRead(std::uint32_t tensor, std::span<const SourceResolution> parts);
  bool IsTouched(const Resolution& to);
  void PlaceTied(std::uint32_t tensor, const Resolution& to);
  void AddAlias(std::uint32_t tensor, std::uint32_t owner);
  void AddPlacements(std::uint32_t tensor, const Resolution& to);
  void AddPlacement(std::uint32_t tensor, const PlannedLayer& layer, const PlacedPiece& piece, std::uint32_t part);
  void AddCut(std::uint32_t tensor, const PlannedLayer& layer, const PlacedPiece& piece);
  std::uint32_t LayerOf(const Module* owner);
  std::uint32_t GroupOf(std::uint32_t layer);
  void JoinGroups(std::uint32_t one, std::uint32_t other);
  void PlaceStandIns();
  LoadPlan WithWholeTensors();
  void KeepUntouchedLayers();
  void OrderPlacements();
  void IndexTensors();

  const Module& model_;
  const Manifest& manifest_;
  LoadPlan plan_;
  PlanProblems problems_;
  std::set<std::string> refused_;      // tree names of tensors that could not be placed
  std::vector<const Module*> owners_;  // the module of each layer
  std::vector<bool> touched_;          // by parameter: whether any tensor belongs to it, if only to another rank's part
  std::unordered_map<const Module*, std::uint32_t> layer_of_;  // filled when it is first needed
  std::size_t last_layer_ = 0;
  std::vector<std::pair<std::uint32_t, Resolution>> tied_;  // tied tensors, placed once their owners are known
  // Tensors by their name in the tree, if that is not their own: they were mapped, or stand for the tensor they are
  // tied to.
  std::unordered_map<std::string, std::uint32_t> renamed_;
};

}  // namespace layercast
