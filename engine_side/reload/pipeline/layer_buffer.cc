#include "engine_side/reload/pipeline/layer_buffer.h"

#include <algorithm>
#include <cstdio>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/log.h"

namespace layercast {
namespace {

// Limits the log: a checkpoint in another order interleaves every layer, on every rank, in every reload.
constexpr std::size_t kLoggedEpisodes = 3;

std::string Quoted(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? ", \"" : "\"") + item + "\"";
  return out + "]";
}

// This warning is, word for word, the one that users of layerwise reload know.
std::string Warning(std::uint64_t bytes, const std::vector<std::string>& class_names) {
  char megabytes[32];
  std::snprintf(megabytes, sizeof(megabytes), "%.1f", static_cast<double>(bytes) / 1e6);
  return "Allocating " + std::string(megabytes) + " MB of device memory to buffers to load " + Quoted(class_names) +
         " layers. This extra memory usage can be avoided by ordering weights by their parent layer when reloading.";
}

}  // namespace

std::uint64_t PackedBytes(const Placement& placement, const Manifest& manifest) {
  const DType dtype = manifest.entry(placement.tensor).spec.dtype;
  return static_cast<std::uint64_t>(placement.source.num_elements()) *
         static_cast<std::uint64_t>(BitsPerElement(dtype)) / 8;
}

LayerBuffer::LayerBuffer(const LoadPlan& plan, const Manifest& manifest, StageWork& work, std::uint64_t limit)
    : plan_(plan), manifest_(manifest), work_(work), limit_(limit), arrived_(plan.placements().size()) {
  for (const PlannedLayer& layer : plan.layers()) {
    std::uint32_t awaited = 0;
    for (std::uint32_t i = 0; i < layer.num_placements; ++i) {
      awaited += PackedBytes(plan.placements()[layer.first_placement + i], manifest) != 0 ? 1U : 0U;
    }
    placements_awaited_.push_back(awaited);
  }
}

bool LayerBuffer::Count(const Piece& piece) {
  const Placement& placement = plan_.placements()[piece.placement];
  const std::uint32_t layer = plan_.parameters()[placement.parameter].layer;
  IntervalSet& arrived = arrived_[piece.placement];
  if (!arrived.Add(piece.begin, piece.end)) {
    throw Error(ErrorCode::kInvalidArgument, "layer " + plan_.layers()[layer].path + ": '" +
                                                 manifest_.entry(placement.tensor).spec.name +
                                                 "' arrived twice: expected each byte exactly once");
  }
  if (piece.begin == piece.end) return false;
  if (arrived.covered() == PackedBytes(placement, manifest_)) --placements_awaited_[layer];
  return true;
}

bool LayerBuffer::CountBuffered(const Piece& piece) {
  if (!Count(piece)) return false;
  const std::uint32_t layer = plan_.parameters()[plan_.placements()[piece.placement].parameter].layer;
  if (!open_.contains(layer)) {
    opening_order_.push_back(layer);
    ++groups_[plan_.layers()[layer].group];
  }
  NoteInterleaving();
  return true;
}

MaterializedLayer* LayerBuffer::MemoryOf(std::uint32_t layer) {
  const auto found = open_.find(layer);
  return found == open_.end() ? nullptr : &found->second;
}

MaterializedLayer& LayerBuffer::Open(std::uint32_t layer) {
  ExpectRoomFor(layer);
  MaterializedLayer& memory = open_[layer] = Materialize(plan_, plan_.layers()[layer], work_);
  bytes_ += memory.num_bytes();
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  return memory;
}

void LayerBuffer::ExpectRoomFor(std::uint32_t layer) const {
  const std::uint64_t needed = LayerBytes(plan_, plan_.layers()[layer]);
  if (limit_ == 0 || bytes_ + needed <= limit_) return;
  const std::string shortage = "layer " + plan_.layers()[layer].path + " needs " + std::to_string(needed) +
                               " bytes of buffers, of " + std::to_string(limit_) + " that the buffer limit allows";
  if (open_.empty()) throw Error(ErrorCode::kResourceExhausted, shortage + ": no order of weights helps, allow more");
  std::vector<std::string> held;
  std::vector<std::string> awaited;
  for (const auto& [other, memory] : open_) {
    held.push_back(plan_.layers()[other].path + ": " + std::to_string(memory.num_bytes()) + " bytes");
    for (std::string& name : AwaitedBy(other)) awaited.push_back(std::move(name));
  }
  throw Error(ErrorCode::kResourceExhausted, shortage + "; held by incomplete layers: " + Quoted(held) +
                                                 "; tensors still awaited: " + Quoted(awaited) +
                                                 ". Order weights by their parent layer, or allow more");
}

bool LayerBuffer::Covered(std::uint32_t layer) const { return placements_awaited_[layer] == 0; }

bool LayerBuffer::ExpectsBytes(std::uint32_t layer) const {
  const PlannedLayer& planned = plan_.layers()[layer];
  const auto placements = std::span(plan_.placements()).subspan(planned.first_placement, planned.num_placements);
  return std::ranges::any_of(placements, [&](const Placement& p) { return PackedBytes(p, manifest_) != 0; });
}

void LayerBuffer::Release(std::uint32_t layer) {
  LAYERCAST_CHECK(Covered(layer));
  bytes_ -= open_.at(layer).num_bytes();
  open_.erase(layer);
  if (std::erase(opening_order_, layer) == 0) return;  // no piece ever came for it
  const auto group = groups_.find(plan_.layers()[layer].group);
  if (--group->second == 0) groups_.erase(group);
  if (groups_.size() <= 1) interleaving_ = false;
}

// An episode begins when the open layers grow from one group of layers to two, and is reported once. Layers of one
// group do not count as interleaved: a tensor that several layers have parts of opens them all, in whatever order
// tensors come.
void LayerBuffer::NoteInterleaving() {
  if (interleaving_ || groups_.size() < 2) return;
  interleaving_ = true;
  OutOfOrderEpisode episode;
  std::vector<std::string> class_names;
  std::uint64_t buffered = 0;
  for (const std::uint32_t layer : opening_order_) {
    class_names.push_back(plan_.layers()[layer].class_name);
    episode.layers.push_back(plan_.layers()[layer].path);
    buffered += BufferedBytes(layer);
    for (std::string& name : AwaitedBy(layer)) episode.awaited.push_back(std::move(name));
  }
  episode.warning = Warning(buffered, class_names);
  if (episodes_.size() < kLoggedEpisodes) {
    log::warn("{}", episode.warning);
    log::warn("open layers: {}; tensors still awaited: {}", Quoted(episode.layers), Quoted(episode.awaited));
  } else if (episodes_.size() == kLoggedEpisodes) {
    log::warn("layers interleave again; the reload's report (out_of_order) has each time that they do");
  }
  episodes_.push_back(std::move(episode));
}

// Counts this rank's parts of the tensors that have begun to arrive, so that the figure does not depend on how tensors
// are cut into pieces.
std::uint64_t LayerBuffer::BufferedBytes(std::uint32_t layer) const {
  const PlannedLayer& planned = plan_.layers()[layer];
  std::uint64_t bytes = 0;
  for (std::uint32_t i = planned.first_placement; i < planned.first_placement + planned.num_placements; ++i) {
    if (arrived_[i].covered() != 0) bytes += PackedBytes(plan_.placements()[i], manifest_);
  }
  return bytes;
}

std::vector<std::string> LayerBuffer::AwaitedBy(std::uint32_t layer) const {
  std::vector<std::string> names;
  const PlannedLayer& planned = plan_.layers()[layer];
  for (std::uint32_t i = 0; i < planned.num_placements; ++i) {
    const std::uint32_t index = planned.first_placement + i;
    const Placement& placement = plan_.placements()[index];
    const std::string& name = manifest_.entry(placement.tensor).spec.name;
    const bool awaited = arrived_[index].covered() < PackedBytes(placement, manifest_);
    if (awaited && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

std::vector<std::string> LayerBuffer::AwaitedTensors() const {
  std::vector<std::string> names;
  for (std::uint32_t layer = 0; layer < plan_.layers().size(); ++layer) {
    if (Covered(layer)) continue;
    for (std::string& name : AwaitedBy(layer)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace layercast
