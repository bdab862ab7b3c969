#include "src/session/fetch/snapshot_fetch.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace layercast {

SnapshotFetch::SnapshotFetch(std::span<const std::unique_ptr<ChunkFetch>> chunks,
                             std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                             std::span<const AmaxRequest> amax_requests,
                             std::span<const std::optional<OfferedDelta>> deltas, FetchSink& sink)
    : schedule_(schedule), sink_(sink), awaited_amax_(amax_requests.begin(), amax_requests.end()) {
  std::ranges::sort(awaited_amax_, std::greater(), &AmaxRequest::before_chunk);
  for (std::uint32_t i = 0; i < chunks.size(); ++i) {
    parts_.push_back(std::make_unique<SnapshotPart>(*chunks[i], std::move(subscribed[i]), schedule.numbers().FirstOf(i),
                                                    sink, lost_relays_, deltas[i] ? &*deltas[i] : nullptr));
  }
}

void SnapshotFetch::Run() {
  AwaitSigned();
  for (std::uint32_t chunk = 0; chunk < schedule_.num_chunks(); ++chunk) Take(chunk);
  for (const auto& part : parts_) part->End();
}

void SnapshotFetch::AwaitSigned() {
  RequestAll();
  for (const auto& part : parts_) {
    const std::string stage = "the signature of " + part->manifest().version().ToString();
    while (!part->is_vouched_for()) {
      part->PollLink(stage);
      LookAtLinks(stage);
    }
  }
}

void SnapshotFetch::Take(std::uint32_t chunk) {
  AwaitAmax(chunk);
  const std::span<const Share> shares = schedule_.SharesOf(chunk);
  std::vector<std::vector<RegionView>> views = Await(shares);
  sink_.OnChunk(chunk, schedule_.PutTogether(chunk, views));
  for (const Share& share : shares) parts_[share.publisher]->Done(share.chunk);
  LookAtLinks(StageOf(shares.front()));
}

void SnapshotFetch::AwaitAmax(std::uint32_t chunk) {
  for (; !awaited_amax_.empty() && awaited_amax_.back().before_chunk <= chunk; awaited_amax_.pop_back()) {
    RequestAll();
    AwaitAmaxOf(awaited_amax_.back().tensor);
  }
}

void SnapshotFetch::AwaitAmaxOf(std::uint32_t tensor) {
  SnapshotPart& part = *parts_[schedule_.numbers().PublisherOf(tensor)];
  const std::string stage = "the magnitudes of a tensor of " + part.manifest().version().ToString();
  while (!part.HasAmax(tensor)) {
    part.PollLink(stage);
    LookAtLinks(stage);
  }
}

// They have to be here at the same time: while one is waited for, a relay may be lost, and another share with it.
std::vector<std::vector<RegionView>> SnapshotFetch::Await(std::span<const Share> shares) {
  std::vector<std::vector<RegionView>> views;
  while (views.size() < shares.size()) {
    views.clear();
    for (const Share& share : shares) Await(share);
    for (const auto& part : parts_) part->TakeLanded();
    for (const Share& share : shares) {
      std::optional<std::vector<RegionView>> verified;
      if (parts_[share.publisher]->Has(share.chunk)) verified = parts_[share.publisher]->Verified(share.chunk);
      if (!verified) break;
      views.push_back(*std::move(verified));
    }
  }
  return views;
}

void SnapshotFetch::Await(const Share& share) {
  SnapshotPart& part = *parts_[share.publisher];
  while (true) {
    RequestAll();
    if (part.Has(share.chunk)) return;
    if (!part.PollFor(share.chunk)) LookAtLinks(StageOf(share));
  }
}

void SnapshotFetch::RequestAll() {
  for (const auto& part : parts_) part->Request();
}

void SnapshotFetch::LookAtLinks(const std::string& stage) {
  for (const auto& part : parts_) part->LookAtLink(stage);
}

}  // namespace layercast
