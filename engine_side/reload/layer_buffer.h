// Stage 1. Knows which layers are open (some of their tensors are here, some are not), holds each one's memory until it
// is covered, and notices a stream that interleaves layers which no tensor has parts of in common. A layer's buffer
// *is* its parameters' memory, materialized when its first piece arrives: so an open layer is held once, not as loose
// tensors and again as a fused one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/plan/piece.h"
#include "engine_side/reload/interval_set.h"
#include "engine_side/reload/materialize.h"
#include "layercast/report.h"

namespace layercast {

// Resource; one thread only.
class LayerBuffer {
 public:
  // The manifest names tensors in errors and warnings. `limit`: the most bytes of open layers; 0: no bound.
  LayerBuffer(const LoadPlan& plan, const Manifest& manifest, StageWork& work, std::uint64_t limit = 0);

  // Counts a piece as arrived. False: an empty one, there is nothing to do. Throws kInvalidArgument naming the tensor
  // when some of the piece was here before. Count is for layers that are never opened; CountBuffered also notices a
  // stream that goes on to another layer.
  bool Count(const Piece& piece);
  bool CountBuffered(const Piece& piece);
  // Null while the layer is not open.
  MaterializedLayer* MemoryOf(std::uint32_t layer);
  // Throws kResourceExhausted naming the layers that hold the memory where the limit leaves no room: only tensors that
  // they wait for would make some, and those come later.
  MaterializedLayer& Open(std::uint32_t layer);
  bool Covered(std::uint32_t layer) const;
  // False for a layer that no byte is ever sent for: all of it is padding, or empty.
  bool ExpectsBytes(std::uint32_t layer) const;
  // Gives a covered layer's memory back.
  void Release(std::uint32_t layer);

  // Layers that are not covered yet, and the tensors that they wait for, for the error of a stream that ended.
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
  std::vector<std::uint32_t> opening_order_;       // of the layers in open_
  std::map<std::uint32_t, std::uint32_t> groups_;  // of these: how many of each are open
  std::vector<IntervalSet> arrived_;               // by placement
  std::vector<std::uint32_t> placements_awaited_;  // by layer: placements not covered yet
  std::uint64_t bytes_ = 0;                        // of open_
  std::uint64_t peak_bytes_ = 0;
  bool interleaving_ = false;  // an episode goes on
  std::vector<OutOfOrderEpisode> episodes_;
};

// The bytes of a placement's source: what its pieces add up to.
std::uint64_t PackedBytes(const Placement& placement, const Manifest& manifest);

}  // namespace layercast
