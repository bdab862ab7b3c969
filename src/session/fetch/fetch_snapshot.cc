#include "src/session/fetch/fetch_snapshot.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace layercast {
namespace {

class SnapshotFetch {
 public:
  SnapshotFetch(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                std::span<const AmaxRequest> amax_requests, std::span<const std::unique_ptr<ChunkReceiver>> receivers,
                const RelayAccess& access)
      : schedule_(schedule),
        sink_(receivers.front()->sink()),
        awaited_amax_(amax_requests.begin(), amax_requests.end()) {
    std::ranges::sort(awaited_amax_, std::greater(), &AmaxRequest::before_chunk);
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      parts_.push_back(std::make_unique<SnapshotPart>(std::move(subscribed[i]), *receivers[i], access));
    }
  }

  void Run() {
    for (std::uint32_t chunk = 0; chunk < schedule_.num_chunks(); ++chunk) Take(chunk);
    for (const auto& part : parts_) part->End();
  }

 private:
  void Take(std::uint32_t chunk) {
    AwaitAmax(chunk);
    const std::span<const Share> shares = schedule_.SharesOf(chunk);
    std::vector<std::vector<RegionView>> views = Await(shares);
    sink_.OnChunk(chunk, schedule_.PutTogether(chunk, views));
    for (const Share& share : shares) parts_[share.publisher]->Done(share.chunk);
    LookAtLinks(StageOf(shares.front()));
  }

  // Waits for the magnitudes that the sink needs before it takes that chunk.
  void AwaitAmax(std::uint32_t chunk) {
    for (; !awaited_amax_.empty() && awaited_amax_.back().before_chunk <= chunk; awaited_amax_.pop_back()) {
      for (const auto& any : parts_) any->Request();
      AwaitAmaxOf(awaited_amax_.back().tensor);
    }
  }

  void AwaitAmaxOf(std::uint32_t tensor) {
    SnapshotPart& part = PartOf(tensor);
    const std::string stage = "the magnitudes of a tensor of " + part.receiver().manifest().version().ToString();
    while (!part.HasAmax(tensor)) {
      part.PollLink(stage);
      LookAtLinks(stage);
    }
  }

  // The publisher's part that has the tensor. Tensors are numbered consecutively through the parts.
  SnapshotPart& PartOf(std::uint32_t tensor) {
    const auto after = std::ranges::upper_bound(parts_, tensor, {},
                                                [](const auto& part) { return part->receiver().parts().first_tensor; });
    return **std::prev(after);
  }

  // Waits until all shares are here and verified, and returns their views. They have to be here at the same time: while
  // one is waited for, a relay may be lost, and another share with it.
  std::vector<std::vector<RegionView>> Await(std::span<const Share> shares) {
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

  void Await(const Share& share) {
    SnapshotPart& part = *parts_[share.publisher];
    while (true) {
      for (const auto& any : parts_) any->Request();
      if (part.Has(share.chunk)) return;
      if (!part.PollFor(share.chunk)) LookAtLinks(StageOf(share));
    }
  }

  std::string StageOf(const Share& share) const { return parts_[share.publisher]->receiver().StageOf(share.chunk); }

  void LookAtLinks(const std::string& stage) {
    for (const auto& part : parts_) part->LookAtLink(stage);
  }

  const SharedSchedule& schedule_;
  FetchSink& sink_;
  std::vector<AmaxRequest> awaited_amax_;             // the last is the next to come
  std::vector<std::unique_ptr<SnapshotPart>> parts_;  // by publisher
};

}  // namespace

void FetchSnapshot(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                   std::span<const AmaxRequest> amax_requests,
                   std::span<const std::unique_ptr<ChunkReceiver>> receivers, const RelayAccess& access) {
  SnapshotFetch(std::move(subscribed), schedule, amax_requests, receivers, access).Run();
}

}  // namespace layercast
