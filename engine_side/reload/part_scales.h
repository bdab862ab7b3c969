// Between quantize and derive: parts of a fused layer that came as codes, each with one scale for all of it (FP8 per
// tensor; NVFP4's global one), of a layer that has one for all of them. Where they differ, codes are brought to the
// largest (rescale.h), in the sink: so it is the same by whatever way they came, and parts of one scale cost nothing.
// Only the scales are the host's to know.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_side/plan/piece.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_sink.h"
#include "engine_side/reload/stage_work.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class PartScales {
 public:
  PartScales(const LoadPlan& plan, const KernelLayout& layout, const LayerSink& sink, StageWork& work)
      : plan_(plan), layout_(layout), sink_(sink), work_(work) {}

  // A piece of a part's scales, numbers of `dtype` that the host reads.
  void Note(const Piece& piece, DType dtype, const RegionView& scales);
  // Every parameter of the layer is in the sink, where the layer is open.
  void Run(const PlannedLayer& layer);

 private:
  using Part = std::pair<std::int64_t, std::string_view>;  // of a matrix, the shard_id
  using Scales = std::map<Part, float>;
  struct Rows {
    std::int64_t first, end;
  };

  void BringToLargest(std::uint32_t parameter, const Scales& scales);
  std::uint32_t WeightOf(std::uint32_t parameter) const;
  std::map<Part, Rows> RowsOf(std::uint32_t weight) const;
  // Rows of a matrix of a parameter, in the sink.
  std::span<std::byte> InSink(std::uint32_t parameter, std::int64_t matrix, const Rows& rows) const;
  void RescaleRows(std::uint32_t weight, std::int64_t matrix, const Rows& rows, float from, float to);

  const LoadPlan& plan_;
  const KernelLayout& layout_;
  const LayerSink& sink_;
  StageWork& work_;
  std::map<std::uint32_t, Scales> scales_;  // by parameter, of layers that are not whole yet
};

}  // namespace layercast
