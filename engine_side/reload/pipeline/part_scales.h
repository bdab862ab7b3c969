// Parts of a fused layer that came as codes, each with one scale for all of it (FP8 per tensor; NVFP4's global scale),
// in a layer that has one scale for all parts. If the scales differ, codes are rescaled to the largest (rescale.h).
// This happens in the sink, between quantize and derive, so that the result does not depend on how the parts came.
// Parts that share one scale cost nothing. The host reads only the scales. Used by the pipeline.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_side/plan/piece.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_sink.h"
#include "engine_side/reload/work/stage_work.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class PartScales {
 public:
  PartScales(const LoadPlan& plan, const KernelLayout& layout, const LayerSink& sink, StageWork& work)
      : plan_(plan), layout_(layout), sink_(sink), work_(work) {}

  // Notes a piece of a part's scales, which are numbers of `dtype` in host memory.
  void Note(const Piece& piece, DType dtype, const RegionView& scales);
  // Rescales a layer's parts. Every parameter of the layer must be in the sink, in which the layer is open.
  void Run(const PlannedLayer& layer);

 private:
  using Part = std::pair<std::int64_t, std::string_view>;  // index of the matrix, and shard_id
  using Scales = std::map<Part, float>;
  struct Rows {
    std::int64_t first, end;
  };

  void BringToLargest(std::uint32_t parameter, const Scales& scales);
  std::uint32_t WeightOf(std::uint32_t parameter) const;
  std::map<Part, Rows> RowsOf(std::uint32_t weight) const;
  // The bytes, in the sink, of rows of a matrix of a parameter.
  std::span<std::byte> InSink(std::uint32_t parameter, std::int64_t matrix, const Rows& rows) const;
  void RescaleRows(std::uint32_t weight, std::int64_t matrix, const Rows& rows, float from, float to);

  const LoadPlan& plan_;
  const KernelLayout& layout_;
  const LayerSink& sink_;
  StageWork& work_;
  std::map<std::uint32_t, Scales> scales_;  // by parameter, of layers that are not whole yet
};

}  // namespace layercast
