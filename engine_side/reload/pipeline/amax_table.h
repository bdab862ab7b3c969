// The largest magnitudes that came with a version: one for each tensor, and finer ones if a recipe asks for them. From
// them ranks that hold parts of one weight compute the same scale without communicating. Used by the pipeline.
// Resource; one thread only.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "src/tensor/kernels/axis_amax.h"

namespace layercast {

class AmaxTable {
 public:
  // Both must outlive the table.
  AmaxTable(const LoadPlan& plan, const Manifest& manifest);

  void Set(std::uint32_t tensor, float amax) {
    tensors_.at(tensor) = amax;
    awaited_.erase(tensor);
  }
  // Marks a tensor whose magnitudes are not complete until Set is called for it.
  void Await(std::uint32_t tensor) { awaited_.insert(tensor); }
  const std::set<std::uint32_t>& awaited() const { return awaited_; }
  bool IsAwaited(std::uint32_t parameter) const;
  // Adds the answer to a request for `box` of this tensor, in the shape in which the tensor is read. It is combined
  // with what is known of other boxes of the tensor.
  void AddAxes(std::uint32_t tensor, KeptAxes kept, const Box& box, std::span<const float> amax);

  // Whether the magnitude of every tensor that fills the parameter is known from the manifest. If so, the answers to
  // AmaxRequests also come before the tensors' bytes.
  bool IsAnnounced(std::uint32_t parameter) const;
  // The largest magnitude of a whole matrix of a quantized parameter, over all ranks, after the cast to the parameter's
  // dtype. Negative if it is not known. Throws kCorrupt, naming a tensor with a magnitude that this dtype cannot hold.
  float OfMatrix(std::uint32_t parameter, std::int64_t matrix) const;
  // The largest magnitudes of the rows of the matrix that this rank holds, over all ranks' columns, after the cast to
  // the parameter's dtype. Empty if they are not known. Throws as OfMatrix does.
  std::vector<float> RowsOfMatrix(std::uint32_t parameter, std::int64_t matrix) const;

 private:
  struct Known {
    KeptAxes kept = 0;
    std::vector<float> values;
  };
  std::vector<const Placement*> PlacementsOf(std::uint32_t parameter, std::int64_t matrix) const;
  void CheckHolds(const Placement& placement, float amax) const;
  float OfPlaced(const Placement& placement, std::int64_t matrix) const;
  bool AddRows(const Placement& placement, std::int64_t matrix, std::span<float> rows) const;

  const LoadPlan& plan_;
  const Manifest& manifest_;
  std::vector<float> tensors_;
  std::set<std::uint32_t> awaited_;
  std::map<std::uint32_t, Known> axes_;
  // For each quantized parameter that is a stack of matrices: the placements that fill each matrix.
  std::map<std::uint32_t, std::vector<std::vector<const Placement*>>> stacks_;
};

}  // namespace layercast
