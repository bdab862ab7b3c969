// Stage 1 of the pipeline. Knows which layers are open (some of their tensors have arrived, others have not), holds the
// memory of each until it is covered, and notices a stream that interleaves layers although no tensor has parts of
// both. A layer's buffer *is* its parameters' memory, materialized when the layer's first piece arrives. So an open
// layer is held only once, and not both as loose tensors and as a fused one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/plan/piece.h"
#include "engine_side/reload/pipeline/interval_set.h"
#include "engine_side/reload/pipeline/materialize.h"
#include "layercast/report.h"

namespace layercast {

// Resource; one thread only.
class LayerBuffer {
 public:
  // `manifest` names tensors in errors and warnings. `limit` is the most bytes that open layers may take; 0 is no
  // limit.
  LayerBuffer(const LoadPlan& plan, const Manifest& manifest, StageWork& work, std::uint64_t limit = 0);

  // Both count a piece as arrived, and return false for an empty one, with which there is nothing to do. They throw
  // kInvalidArgument, naming the tensor, if some of the piece has arrived before. Count is for layers that are never
  // opened. CountBuffered also notices if a stream goes on to another layer.
  bool Count(const Piece& piece);
  bool CountBuffered(const Piece& piece);
  // The memory of a layer; null while the layer is not open.
  MaterializedLayer* MemoryOf(std::uint32_t layer);
  // Opens a layer. If the limit leaves no room for it, throws kResourceExhausted, naming the layers that hold the
  // memory: only the tensors that those wait for would free some, and these come later.
  MaterializedLayer& Open(std::uint32_t layer);
  bool Covered(std::uint32_t layer) const;
  // False for a layer for which no byte is ever sent, because all of it is padding, or empty.
  bool ExpectsBytes(std::uint32_t layer) const;
  // Frees the memory of a covered layer.
  void Release(std::uint32_t layer);

  // The tensors that layers still wait for, to be named in the error for a stream that has ended.
  std::vector<std::string> AwaitedTensors() const;
  std::uint64_t peak_bytes() const { return peak_bytes_; }
  const std::vector<OutOfOrderEpisode>& episodes() const { return episodes_; }

 private:
  void ExpectRoomFor(std::uint32_t layer) const;
  void NoteInterleaving();
  std::uint64_t BufferedBytes(std::uint32_t layer) const;
  std::vector<std::string> AwaitedBy(std::uint32_t layer) const;

  const LoadPlan& plan_;
  const Manifest& manifest_;
  StageWork& work_;
  const std::uint64_t limit_;
  std::map<std::uint32_t, MaterializedLayer> open_;
  std::vector<std::uint32_t> opening_order_;       // layers in the order of their first pieces, until they are released
  std::map<std::uint32_t, std::uint32_t> groups_;  // by group: how many of its layers are in opening_order_
  std::vector<IntervalSet> arrived_;               // by placement
  std::vector<std::uint32_t> placements_awaited_;  // by layer: placements not covered yet
  std::uint64_t bytes_ = 0;                        // held by open_
  std::uint64_t peak_bytes_ = 0;
  bool interleaving_ = false;  // an episode has begun, and not ended
  std::vector<OutOfOrderEpisode> episodes_;
};

// The bytes of a placement's source, which is what the bytes of its pieces add up to.
std::uint64_t PackedBytes(const Placement& placement, const Manifest& manifest);

}  // namespace layercast
