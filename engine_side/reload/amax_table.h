// The largest magnitudes that came with a version: per tensor, and finer where a recipe asks. Ranks that hold parts of
// one weight make the same scale from it without talking. Resource; one thread only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
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
  // What AmaxRequests asked of `box` of this tensor, in the shape that it is read in, together with what is known of
  // other boxes of it.
  void AddAxes(std::uint32_t tensor, KeptAxes kept, const Box& box, std::span<const float> amax);

  // Whether the manifest says it of every tensor that fills the parameter. What AmaxRequests asks for comes then too,
  // before the tensors' bytes.
  bool IsAnnounced(std::uint32_t parameter) const;
  // Of a quantized parameter's whole matrix, over all ranks, as its values are after the cast to the parameter's dtype.
  // Negative: not known.
  float OfMatrix(std::uint32_t parameter, std::int64_t matrix) const;
  // Of each of this rank's rows of it over all columns of all ranks, likewise. Empty: not known.
  std::vector<float> RowsOfMatrix(std::uint32_t parameter, std::int64_t matrix) const;

 private:
  struct Known {
    KeptAxes kept = 0;
    std::vector<float> values;
  };
  std::vector<const Placement*> PlacementsOf(std::uint32_t parameter, std::int64_t matrix) const;
  float OfPlaced(const Placement& placement, std::int64_t matrix) const;
  bool AddRows(const Placement& placement, std::int64_t matrix, std::span<float> rows) const;

  const LoadPlan& plan_;
  const Manifest& manifest_;
  std::vector<float> tensors_;
  std::set<std::uint32_t> awaited_;
  std::map<std::uint32_t, Known> axes_;
  // Of each parameter that is a stack: by matrix, what fills a part of it.
  std::map<std::uint32_t, std::vector<std::vector<const Placement*>>> stacks_;
};

}  // namespace layercast
