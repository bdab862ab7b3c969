// The largest magnitudes that came with a version: per tensor, and per row where a recipe asks. Ranks that hold parts
// of one weight make the same scale from it without talking. Resource; one thread only.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/quant/recipe.h"

namespace layercast {

class AmaxTable {
 public:
  AmaxTable(const LoadPlan& plan, const Manifest& manifest);

  void Set(std::uint32_t tensor, float amax) { tensors_.at(tensor) = amax; }
  void SetRows(std::uint32_t tensor, std::span<const float> rows) { rows_[tensor].assign(rows.begin(), rows.end()); }

  // Of the whole fused parameter, over all ranks, as its values are after the cast to its dtype. Negative: not known.
  float OfParameter(std::uint32_t parameter) const;
  // Of each of this rank's rows over all columns of all ranks, likewise. Empty: not known.
  std::vector<float> RowsOfParameter(std::uint32_t parameter) const;

 private:
  const LoadPlan& plan_;
  std::vector<float> tensors_;
  std::map<std::uint32_t, std::vector<float>> rows_;
};

// The tensors whose row amax a rank needs under `recipe`: those of weights that are sharded over columns.
std::vector<std::uint32_t> RowAmaxTensors(const LoadPlan& plan, const Recipe& recipe);

}  // namespace layercast
