// The layerwise pipeline: takes pieces as they arrive, and leaves whole layers in a sink. A layer is processed as soon
// as its last planned byte has arrived. First loads and reloads, from files and from the wire, all go through it.
//
//   piece -> layer_buffer -> materialize -> fuse_and_shard -> [layer covered] -> quantize -> part_scales -> derive
//         -> noise -> sink
//
// If a layer's recipe and pieces allow it, its pieces go straight to the sink (`direct`): this gives the same bytes in
// one pass over memory, and buffers nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine_side/plan/piece.h"
#include "engine_side/reload/noise/norm_noise.h"
#include "engine_side/reload/pipeline/amax_table.h"
#include "engine_side/reload/pipeline/derive.h"
#include "engine_side/reload/pipeline/layer_buffer.h"
#include "engine_side/reload/pipeline/part_scales.h"
#include "engine_side/reload/pipeline/quantize.h"
#include "engine_side/reload/pipeline/stage_clock.h"
#include "engine_side/reload/work/stage_work.h"
#include "src/base/failpoint.h"

namespace layercast {

struct PipelineParts {
  const LoadPlan& plan;
  const Manifest& manifest;
  const KernelLayout& layout;
  LayerRecipes recipes;
  LayerSink& sink;
  StageWork& work;
  WorkerPool& pool;
  FailPoints& failpoints;
  std::uint64_t buffer_limit = 0;  // LayerBuffer's `limit`
  NormNoise* noise = nullptr;      // of the version, which was begun; null: none
  TraceRecorder* trace = nullptr;  // of stages and layers; null: of nothing
};

// Resource; one thread only; for one version. What it borrows must outlive it.
class ReloadPipeline {
 public:
  // `pieces` are all pieces that will arrive, if layers may be processed directly where that is possible. If it is
  // empty, every layer goes through the five stages.
  ReloadPipeline(const PipelineParts& parts, std::span<const Piece> pieces);

  AmaxTable& amax() { return amax_; }
  // To be called when magnitudes of a tensor have come. Processes the covered layers that waited for nothing else.
  void MagnitudesCame(std::uint32_t tensor);
  std::map<std::string, double> milliseconds() const { return clock_.milliseconds(); }

  // Takes one piece. `view` is in the tensor's dtype, and is not used after the call returns. Throws kInvalidArgument
  // if some of the bytes arrived before. Throws kCorrupt on NaN or infinity; on a device, a later call may throw it.
  void Accept(const Piece& piece, const RegionView& view);
  // To be called after the last piece. Throws kFailedPrecondition, naming the tensors that are still awaited.
  void Finish();

  std::uint64_t layers_done() const { return layers_done_; }
  std::uint64_t layers_kept() const { return layers_kept_; }  // layers that a partial version leaves out
  const LayerBuffer& buffer() const { return buffer_; }
  bool IsDirect(std::uint32_t layer) const { return direct_[layer]; }

 private:
  void ChooseDirect(std::span<const Piece> pieces);
  bool ParameterAllowsDirect(std::uint32_t parameter) const;
  bool PlacementAllowsDirect(const Placement& placement) const;
  bool PieceAllowsDirect(const Piece& piece) const;
  void AcceptValues(const Piece& piece, const RegionView& view);
  void AcceptScales(const Piece& piece, const RegionView& view);
  void AcceptDirect(const Piece& piece, const RegionView& view);
  SourcePiece Source(const Piece& piece) const;
  void ProcessDirect(const Piece& piece, const RegionView& view);
  void QuantizePiece(const Piece& piece, const MatrixView& rows);
  void AcceptBuffered(const Piece& piece, const RegionView& view);
  bool LacksMagnitudes(std::uint32_t layer) const;
  void ProcessLayer(std::uint32_t layer);
  void QuantizeLayer(std::uint32_t layer);
  void ProcessUnsuppliedLayers();
  void KeepServed(const PlannedLayer& layer);
  void OpenInSink(std::uint32_t layer);
  void FinishInSink(std::uint32_t layer, StageClock::Scope& timing);
  void CloseInSink(const PlannedLayer& layer);
  void AddNoise(const PlannedLayer& layer);
  void FillUnsuppliedInSink(std::uint32_t layer);
  const std::string& NameOf(std::uint32_t layer) const { return parts_.plan.layers()[layer].path; }
  void NoteBegun(std::uint32_t layer);

  PipelineParts parts_;
  AmaxTable amax_;
  LayerBuffer buffer_;
  QuantizeStage quantize_;
  PartScales part_scales_;
  DeriveStage derive_;
  StageClock clock_;
  std::vector<bool> direct_;           // by layer
  std::vector<bool> begun_;            // by layer: a piece of it came; for direct ones
  std::set<std::uint32_t> waiting_;    // covered layers that lack magnitudes
  TraceLane* const layers_lane_;       // null: nobody wants a timeline
  std::vector<TraceTime> first_came_;  // by layer: when its first piece did, if there is layers_lane_
  std::uint64_t layers_done_ = 0;
  std::uint64_t layers_kept_ = 0;
};

}  // namespace layercast
