#include "engine_side/reload/pipeline/pipeline.h"

#include <algorithm>

#include "engine_side/quant/recipes/recipe_parts.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/kernel_dtypes.h"

namespace layercast {
namespace {

// Turns a view of whole rows of a matrix into a matrix.
MatrixView AsMatrix(const RegionView& view, DType dtype, std::int64_t cols) {
  const std::int64_t row_bytes = cols * BitsPerElement(dtype) / 8;
  MatrixView matrix{.dtype = dtype, .data = view.base, .rows = 0, .cols = cols, .row_stride = row_bytes};
  if (row_bytes != 0) matrix.rows = static_cast<std::int64_t>(view.num_bytes()) / row_bytes;
  if (view.rows > 1) matrix.row_stride = static_cast<std::int64_t>(view.stride);
  return matrix;
}

std::string Listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 20;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) out += (i == 0 ? "'" : ", '") + names[i] + "'";
  if (names.size() > kMost) out += " and " + std::to_string(names.size() - kMost) + " more";
  return out;
}

}  // namespace

ReloadPipeline::ReloadPipeline(const PipelineParts& parts, std::span<const Piece> pieces)
    : parts_(parts),
      amax_(parts.plan, parts.manifest),
      buffer_(parts.plan, parts.manifest, parts.work, parts.buffer_limit),
      quantize_(parts.plan, parts.manifest, parts.layout, parts.recipes, amax_, parts.sink, parts.work),
      part_scales_(parts.plan, parts.layout, parts.sink, parts.work),
      derive_(parts.plan, parts.layout, parts_.recipes, parts.sink, parts.work),
      clock_(parts.trace),
      direct_(parts.plan.layers().size(), !pieces.empty()),
      begun_(parts.plan.layers().size()),
      layers_lane_(LaneOf(parts.trace, "layers", TraceKind::kLayers)),
      first_came_(layers_lane_ == nullptr ? 0 : parts.plan.layers().size()) {
  if (!pieces.empty()) ChooseDirect(pieces);
}

// A layer goes directly when each of its parameters, placements and pieces allows it.
void ReloadPipeline::ChooseDirect(std::span<const Piece> pieces) {
  const LoadPlan& plan = parts_.plan;
  for (std::uint32_t i = 0; i < plan.parameters().size(); ++i) {
    if (!ParameterAllowsDirect(i)) direct_[plan.parameters()[i].layer] = false;
  }
  for (const Placement& placement : plan.placements()) {
    if (!PlacementAllowsDirect(placement)) direct_[plan.parameters()[placement.parameter].layer] = false;
  }
  for (const Piece& piece : pieces) {
    const Placement& placement = plan.placements()[piece.placement];
    if (!PieceAllowsDirect(piece)) direct_[plan.parameters()[placement.parameter].layer] = false;
  }
}

bool ReloadPipeline::ParameterAllowsDirect(std::uint32_t parameter) const {
  const PlannedParameter& planned = parts_.plan.parameters()[parameter];
  if (!planned.quantize) return true;
  if (parts_.recipes.Of(planned).row_granularity() <= 0 || !planned.padding.empty()) return false;
  if (planned.spec.num_elements() == 0) return false;  // no piece comes of it, and it may have scales all the same
  if (!IsKernelDType(planned.spec.dtype)) return false;
  // A scale of the whole weight must be known before its first row is.
  return parts_.recipes.Of(planned).Needs(planned.shard_axis) != AmaxNeed::kTensor || amax_.IsAnnounced(parameter);
}

// The rows of a quantized parameter must come whole. PieceAllowsDirect checks that pieces cut them only where the
// recipe allows it.
bool ReloadPipeline::PlacementAllowsDirect(const Placement& placement) const {
  const PlannedParameter& planned = parts_.plan.parameters()[placement.parameter];
  if (!planned.quantize) return true;
  if (!placement.order.is_same()) return false;
  const Box& box = placement.destination;
  const std::size_t rows = box.rank - 2U;
  const std::size_t cols = box.rank - 1U;
  const std::int64_t unit = std::max<std::int64_t>(parts_.recipes.Of(planned).row_granularity(), 1);
  const std::int64_t end = box.begin[rows] + box.extent[rows];
  const bool whole_rows = box.begin[cols] == 0 && box.extent[cols] == planned.spec.shape[cols];
  // The source's rows are as long as the parameter's, so that a view of the source is a matrix of the parameter's rows.
  const bool lie_whole = placement.source.extent[placement.source.rank - 1U] == box.extent[cols];
  const bool fits_units = box.begin[rows] % unit == 0 && (end % unit == 0 || end == planned.spec.shape[rows]);
  return whole_rows && lie_whole && fits_units &&
         parts_.manifest.entry(placement.tensor).spec.dtype == planned.spec.dtype;
}

// A piece of a quantized parameter must hold a multiple of the rows that the recipe can quantize on their own.
bool ReloadPipeline::PieceAllowsDirect(const Piece& piece) const {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  const PlannedParameter& planned = parts_.plan.parameters()[placement.parameter];
  if (!planned.quantize) return true;
  const Box& box = placement.destination;
  const auto row_bytes = static_cast<std::uint64_t>(box.extent[box.rank - 1U] * BitsPerElement(planned.spec.dtype) / 8);
  const auto rows = static_cast<std::uint64_t>(box.extent[box.rank - 2U]);  // of each matrix that it fills
  const auto unit = static_cast<std::uint64_t>(std::max<std::int64_t>(parts_.recipes.Of(planned).row_granularity(), 1));
  if (row_bytes == 0 || unit * row_bytes > parts_.work.MostArrivedBytes()) return false;
  const auto fits = [&](std::uint64_t byte) { return byte % row_bytes == 0 && byte / row_bytes % rows % unit == 0; };
  return fits(piece.begin) && fits(piece.end);
}

void ReloadPipeline::OpenInSink(std::uint32_t layer) {
  parts_.sink.Open(parts_.layout.TensorsOf(parts_.plan.layers()[layer]));
}

// A layer of which something may yet turn out to be wrong is not closed: its sink may write it over the live weights.
void ReloadPipeline::CloseInSink(const PlannedLayer& layer) {
  parts_.work.EndLayer([this, &layer] { parts_.sink.Close(parts_.layout.TensorsOf(layer)); });
}

// To be called when all parameters of the layer are in the sink. Makes what derives from them, and closes the layer.
// `timing` is in kQuantize: clocks are read for every layer, and so once for each change of stages.
void ReloadPipeline::FinishInSink(std::uint32_t layer, StageClock::Scope& timing) {
  const PlannedLayer& planned = parts_.plan.layers()[layer];
  parts_.work.AwaitReads();
  if (direct_[layer]) quantize_.CheckStored(planned);
  quantize_.CheckExponents(planned);
  part_scales_.Run(planned);
  derive_.Run(planned);
  AddNoise(planned);
  timing.Enter(clock_[Stage::kCommit]);
  CloseInSink(planned);
  ++layers_done_;
  if (layers_lane_ == nullptr) return;
  NoteBegun(layer);
  layers_lane_->Add(first_came_[layer], TraceTime::clock::now(), NameOf(layer));
}

void ReloadPipeline::NoteBegun(std::uint32_t layer) {
  if (first_came_[layer] == TraceTime()) first_came_[layer] = TraceTime::clock::now();
}

void ReloadPipeline::AddNoise(const PlannedLayer& layer) {
  if (parts_.noise != nullptr) parts_.noise->Install(parts_.layout.TensorsOf(layer), parts_.sink, parts_.work);
}

void ReloadPipeline::FillUnsuppliedInSink(std::uint32_t layer) {
  const PlannedLayer& planned = parts_.plan.layers()[layer];
  for (std::uint32_t i = planned.first_parameter; i < planned.first_parameter + planned.num_parameters; ++i) {
    const PlannedParameter& parameter = parts_.plan.parameters()[i];
    if (parameter.quantize) continue;
    FillUnsupplied(parameter, parts_.sink.BytesOf(parts_.layout.TensorsOf(i).front()).data(), parts_.work);
  }
}

void ReloadPipeline::Accept(const Piece& piece, const RegionView& view) {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  LAYERCAST_CHECK(view.num_bytes() == piece.end - piece.begin);
  if (!placement.reciprocal) return AcceptValues(piece, view);
  const std::vector<float> values = quantize_.ReciprocalsOf(placement, parts_.manifest, view);
  const std::uint64_t bytes = values.size() * sizeof(float);
  AcceptValues(piece, {reinterpret_cast<const std::byte*>(values.data()), bytes, 1, bytes});
}

// Takes values in the form in which they are to be stored.
void ReloadPipeline::AcceptValues(const Piece& piece, const RegionView& view) {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  const std::uint32_t layer = parts_.plan.parameters()[placement.parameter].layer;
  parts_.failpoints.Hit("layer_buffer");
  if (layers_lane_ != nullptr) NoteBegun(layer);
  if (parts_.plan.parameters()[placement.parameter].sign != Sign::kAny) AcceptScales(piece, view);
  if (direct_[layer]) {
    AcceptDirect(piece, view);
  } else {
    AcceptBuffered(piece, view);
  }
}

// Scales that came with their codes are checked, because they may be wrong. Those of one part of a fused layer are
// noted for PartScales.
void ReloadPipeline::AcceptScales(const Piece& piece, const RegionView& view) {
  parts_.work.Read(view, [this, piece](const RegionView& scales) {
    const Placement& placement = parts_.plan.placements()[piece.placement];
    const TensorSpec& spec = parts_.manifest.entry(placement.tensor).spec;
    quantize_.CheckSign(placement.parameter, spec, scales);
    if (placement.shared) part_scales_.Note(piece, spec.dtype, scales);
  });
}

void ReloadPipeline::AcceptDirect(const Piece& piece, const RegionView& view) {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  const PlannedParameter& parameter = parts_.plan.parameters()[placement.parameter];
  if (!buffer_.Count(piece)) return;
  StageClock::Scope timing(clock_[Stage::kQuantize], &NameOf(parameter.layer));
  if (!begun_[parameter.layer]) {
    begun_[parameter.layer] = true;
    parts_.failpoints.Hit("quantize");
    OpenInSink(parameter.layer);
    FillUnsuppliedInSink(parameter.layer);
  }
  ProcessDirect(piece, view);
  if (buffer_.Covered(parameter.layer)) FinishInSink(parameter.layer, timing);
}

SourcePiece ReloadPipeline::Source(const Piece& piece) const {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  return {parts_.plan, parts_.manifest,
          placement,   parts_.plan.parameters()[placement.parameter].spec,
          piece,       parts_.manifest.entry(placement.tensor).spec.dtype};
}

void ReloadPipeline::ProcessDirect(const Piece& piece, const RegionView& view) {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  const PlannedParameter& parameter = parts_.plan.parameters()[placement.parameter];
  if (parameter.quantize) {
    QuantizePiece(piece, AsMatrix(view, parameter.spec.dtype, parameter.spec.shape.back()));
  } else {
    parts_.work.CopyArrived(Source(piece), view,
                            parts_.sink.BytesOf(parts_.layout.TensorsOf(placement.parameter).front()).data());
  }
}

// A placement may fill a part of each of several matrices, so the rows are quantized matrix by matrix.
void ReloadPipeline::QuantizePiece(const Piece& piece, const MatrixView& rows) {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  const Box& box = placement.destination;
  const std::size_t axis = box.rank - 2U;  // of rows
  const std::int64_t first_matrix = axis == 0 ? 0 : box.begin[0];
  const std::int64_t packed_row = rows.cols * BitsPerElement(rows.dtype) / 8;
  std::int64_t row = static_cast<std::int64_t>(piece.begin) / packed_row;  // of the placement
  for (std::int64_t done = 0; done < rows.rows;) {
    const std::int64_t in_matrix = row % box.extent[axis];
    const std::int64_t count = std::min(rows.rows - done, box.extent[axis] - in_matrix);
    const std::int64_t matrix = first_matrix + row / box.extent[axis];
    quantize_.RunArrived(placement.parameter, matrix, RowsOf(rows, done, count), box.begin[axis] + in_matrix);
    done += count;
    row += count;
  }
}

void ReloadPipeline::AcceptBuffered(const Piece& piece, const RegionView& view) {
  const Placement& placement = parts_.plan.placements()[piece.placement];
  const PlannedParameter& parameter = parts_.plan.parameters()[placement.parameter];
  const PlannedLayer& layer = parts_.plan.layers()[parameter.layer];
  {
    StageClock::Scope timing(clock_[Stage::kLayerBuffer], &NameOf(parameter.layer));
    if (!buffer_.CountBuffered(piece)) return;
    MaterializedLayer* memory = buffer_.MemoryOf(parameter.layer);
    if (memory == nullptr) {
      timing.Enter(clock_[Stage::kMaterialize]);
      parts_.failpoints.Hit("materialize");
      memory = &buffer_.Open(parameter.layer);
      parts_.failpoints.Hit("fuse_and_shard");
    }
    timing.Enter(clock_[Stage::kFuseAndShard]);
    parts_.work.FuseAndShard(Source(piece), view,
                             memory->parameters[placement.parameter - layer.first_parameter].data());
  }
  if (!buffer_.Covered(parameter.layer)) return;
  if (LacksMagnitudes(parameter.layer)) {
    waiting_.insert(parameter.layer);
  } else {
    ProcessLayer(parameter.layer);
  }
}

bool ReloadPipeline::LacksMagnitudes(std::uint32_t layer) const {
  const PlannedLayer& planned = parts_.plan.layers()[layer];
  for (std::uint32_t i = planned.first_parameter; i < planned.first_parameter + planned.num_parameters; ++i) {
    const PlannedParameter& parameter = parts_.plan.parameters()[i];
    if (!parameter.quantize || parts_.recipes.Of(parameter).Needs(parameter.shard_axis) == AmaxNeed::kNone) continue;
    if (amax_.IsAwaited(i)) return true;
  }
  return false;
}

void ReloadPipeline::MagnitudesCame(std::uint32_t tensor) {
  for (const std::uint32_t placement : parts_.plan.PlacementsOf(tensor)) {
    const std::uint32_t layer = parts_.plan.parameters()[parts_.plan.placements()[placement].parameter].layer;
    if (!waiting_.contains(layer) || LacksMagnitudes(layer)) continue;
    waiting_.erase(layer);
    ProcessLayer(layer);
  }
}

void ReloadPipeline::ProcessLayer(std::uint32_t layer) {
  StageClock::Scope timing(clock_[Stage::kQuantize], &NameOf(layer));
  parts_.failpoints.Hit("quantize");
  OpenInSink(layer);
  QuantizeLayer(layer);
  buffer_.Release(layer);
  FinishInSink(layer, timing);
}

void ReloadPipeline::QuantizeLayer(std::uint32_t layer) {
  const PlannedLayer& planned = parts_.plan.layers()[layer];
  const MaterializedLayer& memory = *buffer_.MemoryOf(layer);
  for (std::uint32_t i = 0; i < planned.num_parameters; ++i) {
    const std::uint32_t parameter = planned.first_parameter + i;
    quantize_.Run(parameter, memory.parameters[i].data());
  }
}

// For some layers no piece ever comes: a rank's part of a vocabulary may be nothing but padding, and a version may have
// no scales for a KV cache.
void ReloadPipeline::ProcessUnsuppliedLayers() {
  for (std::uint32_t layer = 0; layer < parts_.plan.layers().size(); ++layer) {
    if (parts_.plan.layers()[layer].kept) {
      KeepServed(parts_.plan.layers()[layer]);
    } else if (buffer_.ExpectsBytes(layer)) {
      continue;
    } else if (direct_[layer]) {
      StageClock::Scope timing(clock_[Stage::kQuantize], &NameOf(layer));
      OpenInSink(layer);
      FillUnsuppliedInSink(layer);
      FinishInSink(layer, timing);
    } else {
      buffer_.Open(layer);
      ProcessLayer(layer);
    }
  }
}

// Copies the served tensors into the sink, like those that came, so that every commit policy and digest sees a whole
// version. Norms begin anew from what was published of them.
void ReloadPipeline::KeepServed(const PlannedLayer& layer) {
  const StageClock::Scope timing(clock_[Stage::kCommit], &layer.path);
  const std::span<const KernelTensor> tensors = parts_.layout.TensorsOf(layer);
  parts_.sink.Open(tensors);
  for (const KernelTensor& tensor : tensors) {
    const std::span<std::byte> bytes = parts_.sink.BytesOf(tensor);
    if (parts_.noise != nullptr && parts_.noise->WriteClean(tensor, bytes, parts_.work)) continue;
    parts_.work.CopyStrided(tensor.destination, bytes);
  }
  AddNoise(layer);
  CloseInSink(layer);
  ++layers_kept_;
}

void ReloadPipeline::Finish() {
  std::vector<std::string> awaited = buffer_.AwaitedTensors();
  if (!waiting_.empty()) {  // for magnitudes of parts that other ranks take
    for (const std::uint32_t tensor : amax_.awaited()) awaited.push_back(parts_.manifest.entry(tensor).spec.name);
  }
  if (!awaited.empty()) {
    throw Error(ErrorCode::kFailedPrecondition, "the weights ended before " + std::to_string(awaited.size()) +
                                                    " tensors were whole: " + Listed(awaited));
  }
  if (!waiting_.empty()) {
    throw Error(ErrorCode::kCorrupt, "layer " + parts_.plan.layers()[*waiting_.begin()].path +
                                         ": expected the magnitudes that its scales need, got its tensors without");
  }
  ProcessUnsuppliedLayers();
  LAYERCAST_CHECK(layers_done_ + layers_kept_ == parts_.plan.layers().size());  // nothing of an earlier version is left
  const StageClock::Scope timing(clock_[Stage::kCommit]);
  parts_.work.Finish();
}

}  // namespace layercast
