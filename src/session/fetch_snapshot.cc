#include "src/session/fetch_snapshot.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace layercast {
namespace {

class SnapshotFetch {
 public:
  SnapshotFetch(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                std::span<const std::unique_ptr<ChunkReceiver>> receivers, const RelayAccess& access, FetchSink& sink)
      : schedule_(schedule), sink_(sink) {
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
    const std::span<const Share> shares = schedule_.SharesOf(chunk);
    std::vector<std::vector<RegionView>> views = Await(shares);
    sink_.OnChunk(chunk, schedule_.PutTogether(chunk, views));
    for (const Share& share : shares) parts_[share.publisher]->Done(share.chunk);
    LookAtLinks(shares.front());
  }

  // All of them are here at once, and verified: waiting for one may cost another, where a relay is lost.
  std::vector<std::vector<RegionView>> Await(std::span<const Share> shares) {
    std::vector<std::vector<RegionView>> views;
    while (views.size() < shares.size()) {
      views.clear();
      for (const Share& share : shares) Await(share);
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
      if (!part.Poll(part.receiver().StageOf(share.chunk))) LookAtLinks(share);
    }
  }

  void LookAtLinks(const Share& share) {
    const std::string stage = parts_[share.publisher]->receiver().StageOf(share.chunk);
    for (const auto& part : parts_) part->LookAtLink(stage);
  }

  const SharedSchedule& schedule_;
  FetchSink& sink_;
  std::vector<std::unique_ptr<SnapshotPart>> parts_;  // by publisher
};

}  // namespace

void FetchSnapshot(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                   std::span<const std::unique_ptr<ChunkReceiver>> receivers, const RelayAccess& access,
                   FetchSink& sink) {
  SnapshotFetch(std::move(subscribed), schedule, receivers, access, sink).Run();
}

}  // namespace layercast
