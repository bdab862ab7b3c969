#include "src/session/fetch_snapshot.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace layercast {
namespace {

// The chunks of one publisher: under way as far ahead as its credits reach, whatever the others do.
class Part {
 public:
  Part(wire::Subscribed subscribed, ChunkReceiver& receiver)
      : offer_(subscribed.offer_id), digests_(std::move(subscribed.chunk_digests)), receiver_(receiver) {}

  ChunkReceiver& receiver() { return receiver_; }
  bool Has(std::uint32_t chunk) const { return here_.contains(chunk); }

  void Request() {
    const Schedule& schedule = receiver_.schedule();
    for (; submitted_ < schedule.chunks().size() && receiver_.window().HasRoom(); ++submitted_) {
      const Chunk& chunk = schedule.chunks()[submitted_];
      receiver_.Submit(submitted_, offer_, schedule.RegionsOf(chunk), chunk.num_bytes);
    }
  }
  // False: nothing came for a while.
  bool Poll(const std::string& stage) {
    std::optional<ChunkCompletion> completion = receiver_.PollChunk(stage);
    if (!completion) return false;
    const std::uint64_t chunk = completion->ticket;
    here_.emplace(chunk, *std::move(completion));
    return true;
  }
  std::vector<RegionView> Verified(std::uint32_t chunk) {
    while (digests_.size() <= chunk) AwaitDigests(chunk);
    return receiver_.Verified(chunk, here_.at(chunk), digests_[chunk]);
  }
  void Done(std::uint32_t chunk) {
    here_.erase(chunk);
    receiver_.window().Done(chunk);
  }
  void End() { receiver_.ExpectOffered(offer_); }

 private:
  void AwaitDigests(std::uint32_t chunk) {
    const std::vector<Digest> more = receiver_.NextDigests("the digest of " + receiver_.StageOf(chunk));
    const std::size_t chunks = receiver_.schedule().chunks().size();
    if (more.empty() || more.size() > chunks - digests_.size()) {
      receiver_.Refuse("sent " + std::to_string(more.size()) + " chunk digests more, expected 1 to " +
                       std::to_string(chunks - digests_.size()));
    }
    digests_.insert(digests_.end(), more.begin(), more.end());
  }

  const std::uint64_t offer_;
  std::vector<Digest> digests_;  // of the first chunks
  ChunkReceiver& receiver_;
  std::map<std::uint64_t, ChunkCompletion> here_;  // completed, and not yet delivered
  std::uint32_t submitted_ = 0;
};

class SnapshotFetch {
 public:
  SnapshotFetch(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                std::span<const std::unique_ptr<ChunkReceiver>> receivers, FetchSink& sink)
      : schedule_(schedule), sink_(sink) {
    for (std::size_t i = 0; i < receivers.size(); ++i) parts_.emplace_back(std::move(subscribed[i]), *receivers[i]);
  }

  void Run() {
    for (std::uint32_t chunk = 0; chunk < schedule_.num_chunks(); ++chunk) Take(chunk);
    for (Part& part : parts_) part.End();
  }

 private:
  void Take(std::uint32_t chunk) {
    const std::span<const Share> shares = schedule_.SharesOf(chunk);
    for (const Share& share : shares) Await(share);
    std::vector<std::vector<RegionView>> views;
    for (const Share& share : shares) views.push_back(parts_[share.publisher].Verified(share.chunk));
    sink_.OnChunk(chunk, schedule_.PutTogether(chunk, views));
    for (const Share& share : shares) parts_[share.publisher].Done(share.chunk);
    LookAtLinks(shares.front());
  }

  void Await(const Share& share) {
    Part& part = parts_[share.publisher];
    while (true) {
      for (Part& any : parts_) any.Request();
      if (part.Has(share.chunk)) return;
      if (!part.Poll(part.receiver().StageOf(share.chunk))) LookAtLinks(share);
    }
  }

  void LookAtLinks(const Share& share) {
    const std::string stage = parts_[share.publisher].receiver().StageOf(share.chunk);
    for (Part& part : parts_) part.receiver().LookAtLink(stage);
  }

  const SharedSchedule& schedule_;
  FetchSink& sink_;
  std::vector<Part> parts_;  // by publisher
};

}  // namespace

void FetchSnapshot(std::vector<wire::Subscribed> subscribed, const SharedSchedule& schedule,
                   std::span<const std::unique_ptr<ChunkReceiver>> receivers, FetchSink& sink) {
  SnapshotFetch(std::move(subscribed), schedule, receivers, sink).Run();
}

}  // namespace layercast
