// The walk over a snapshot. It asks for the schedule's chunks in their order, and keeps as many under way at each
// publisher as that has credits. Each chunk is put together from what the publishers have of it, and delivered in the
// schedule's order. Used by the fetching half of a session.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "src/session/deltas/delta_ask.h"
#include "src/session/fetch/chunk_fetch.h"
#include "src/session/fetch/shared_schedule.h"
#include "src/session/fetch/snapshot_part.h"
#include "src/wire/frames.h"

namespace layercast {

// Resource; one thread only.
class SnapshotFetch {
 public:
  // `chunks` has one for each publisher, and `subscribed` its answer to its schedule, with the digests and magnitudes
  // of its first chunks; the others come while chunks do. `amax_requests` number tensors through all publishers.
  // `deltas`: of publishers whose chunks come so.
  SnapshotFetch(std::span<const std::unique_ptr<ChunkFetch>> chunks, std::vector<wire::Subscribed> subscribed,
                const SharedSchedule& schedule, std::span<const AmaxRequest> amax_requests,
                std::span<const std::optional<OfferedDelta>> deltas, FetchSink& sink);

  void Run();

 private:
  void Take(std::uint32_t chunk);
  // Waits until every publisher has signed something, if they must: manifests are believed then.
  void AwaitSigned();
  // Waits for the magnitudes that the sink needs before it takes that chunk.
  void AwaitAmax(std::uint32_t chunk);
  void AwaitAmaxOf(std::uint32_t tensor);
  // Waits until all shares are here and verified, and returns their views.
  std::vector<std::vector<RegionView>> Await(std::span<const Share> shares);
  void Await(const Share& share);
  std::string StageOf(const Share& share) const { return parts_[share.publisher]->StageOf(share.chunk); }
  void RequestAll();
  void LookAtLinks(const std::string& stage);

  const SharedSchedule& schedule_;
  FetchSink& sink_;
  std::vector<AmaxRequest> awaited_amax_;  // the last is the next to come
  std::set<std::string> lost_relays_;
  std::vector<std::unique_ptr<SnapshotPart>> parts_;  // by publisher
};

}  // namespace layercast
