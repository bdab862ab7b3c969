// The largest magnitudes that came with a version: per tensor, and finer where a recipe asks. Ranks that hold parts of
// one weight make the same scale from it without talking. Resource; one thread only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/quant/recipe.h"
#include "src/tensor/axis_amax.h"

namespace layercast {

class AmaxTable {
 public:
  // Both outlive it.
  AmaxTable(const LoadPlan& plan, const Manifest& manifest);

  void Set(std::uint32_t tensor, float amax) {
    tensors_.at(tensor) = amax;
    awaited_.erase(tensor);
  }
  // What is known of this tensor is not all of it until Set.
  void Await(std::uint32_t tensor) { awaited_.insert(tensor); }
  const std::set<std::uint32_t>& awaited() const { return awaited_; }
  bool IsAwaited(std::uint32_t parameter) const;
  // What AmaxRequests asked of this tensor.
  void SetAxes(std::uint32_t tensor, std::span<const float> amax) { axes_[tensor].assign(amax.begin(), amax.end()); }
  // What it asked of a part of it, `box` of a result of `shape`, together with what is known of the others.
  void AddAxes(std::uint32_t tensor, const Shape& shape, const Box& box, std::span<const float> amax);

  // Whether the manifest says it of every tensor that fills the parameter. What AmaxRequests asks for comes then too,
  // before the tensors' bytes.
  bool IsAnnounced(std::uint32_t parameter) const;
  // Of a quantized parameter's whole matrix, over all ranks, as its values are after the cast to the parameter's dtype.
  // Negative: not known.
  float OfMatrix(std::uint32_t parameter, std::int64_t matrix) const;
  // Of each of this rank's rows of it over all columns of all ranks, likewise. Empty: not known.
  std::vector<float> RowsOfMatrix(std::uint32_t parameter, std::int64_t matrix) const;

 private:
  std::vector<const Placement*> PlacementsOf(std::uint32_t parameter, std::int64_t matrix) const;

  const LoadPlan& plan_;
  const Manifest& manifest_;
  std::vector<float> tensors_;
  std::set<std::uint32_t> awaited_;
  std::map<std::uint32_t, std::vector<float>> axes_;
  // Of each parameter that is a stack: by matrix, what fills a part of it.
  std::map<std::uint32_t, std::vector<std::vector<const Placement*>>> stacks_;
};

// The dimensions that a request keeps, of a shape and of a box: what its answer is of.
Shape KeptOf(const Shape& shape, KeptAxes kept);
Box KeptOf(const Box& box, KeptAxes kept);

// What a rank needs under `recipe` beyond the manifest, by tensor: magnitudes by row of weights that are sharded over
// columns, and by matrix of tensors that hold a stack of them.
std::vector<AmaxRequest> AmaxRequests(const LoadPlan& plan, const Recipe& recipe);

}  // namespace layercast
