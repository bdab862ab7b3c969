// The chunks of a schedule as deltas: frames (src/delta/FORMAT.md) that lead from those of a base to those of a
// version, encoded a few at a time and then offered over the channels, frame i as tensor i. Used by the delta desk,
// which has one for all receivers that have the same base and schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/link/offered_version.h"
#include "src/transport/channel/carried_offer.h"
#include "src/wire/schedule.h"

namespace layercast {

// The most bytes by which a frame may be larger than its chunk: its heads, where it is dense.
inline constexpr std::uint64_t kMostFrameHead = 128;

// Resource; one thread only.
class EncodedDelta {
 public:
  explicit EncodedDelta(std::shared_ptr<const Schedule> schedule) : schedule_(std::move(schedule)) {}

  // Encodes the next few chunks: some tens of milliseconds. Both versions must be held meanwhile. Throws
  // kInvalidArgument if the base does not have the schedule's regions.
  void EncodeNext(const OfferedVersion& base, const OfferedVersion& version, WorkerPool& pool);
  bool complete() const { return chunk_bytes_.size() == schedule_->chunks().size(); }
  std::uint64_t bytes() const { return bytes_; }  // of the frames so far
  // How many bytes each frame has.
  const std::vector<std::uint64_t>& chunk_bytes() const { return chunk_bytes_; }

  // Once it is complete: has the frames offered from now on, in memory of `arena`, under that number.
  void Offer(std::uint64_t id, MemoryResource& arena, std::span<OfferingEnd* const> ends);
  std::optional<std::uint64_t> offer() const;

 private:
  const std::shared_ptr<const Schedule> schedule_;  // the other owners are the desk's cache and sessions
  std::vector<std::uint64_t> chunk_bytes_;
  std::uint64_t bytes_ = 0;
  std::vector<std::vector<std::byte>> frames_;  // until they are offered
  Buffer memory_;                               // of the frames, once they are
  std::optional<CarriedOffer> carried_;         // goes before the memory
};

}  // namespace layercast
