// One publisher's part of a snapshot, as a receiver takes it. Chunks are under way as far ahead as the credits reach,
// whatever other publishers do. They come from the publisher or from the relay that it names, and each is checked
// against the publisher's digest. Used by the walk over a snapshot. Resource; one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/session/fetch/chunk_fetch.h"
#include "src/session/fetch/delta_fetch.h"
#include "src/session/fetch/progress_note.h"
#include "src/session/fetch/relay_fetch.h"

namespace layercast {

class SnapshotPart {
 public:
  // `own` takes chunks from the publisher itself, which has answered `subscribed`; its first tensor has number
  // `first_tensor` in the sink. `lost_relays` are the endpoints of relays that have failed, with any publisher's part.
  // None of them is tried again: opening one whose host hangs takes seconds, and all leases run meanwhile. `delta`:
  // what chunks come as; null: dense.
  SnapshotPart(ChunkFetch& own, wire::Subscribed subscribed, std::uint32_t first_tensor, FetchSink& sink,
               std::set<std::string>& lost_relays, const OfferedDelta* delta);

  const Manifest& manifest() const { return own_.manifest(); }
  // "chunk 3 of 17 of run-17@42 over shm"
  std::string StageOf(std::uint32_t chunk) const { return own_.StageOf(chunk); }
  // Whether that chunk is here, and the digest that it must have is known.
  bool Has(std::uint32_t chunk) const { return here_.contains(chunk) && digests_.size() > chunk; }
  // Whether the sink has got the magnitudes that were asked for of that tensor, which is numbered as in the sink.
  bool HasAmax(std::uint32_t tensor) const { return known_amax_.contains(tensor); }
  void Request();
  // Waits a little for what that chunk lacks. Returns false if nothing came: then the other links should be polled.
  bool PollFor(std::uint32_t chunk);
  // Waits a little for a message from the publisher.
  void PollLink(const std::string& stage);
  // If digests queue (ChunkMemory::queues_digests), takes further chunks that have come, without waiting. Their digests
  // are then under way before an earlier chunk's is waited for, and before its consumer's work is queued.
  void TakeLanded();
  // The views of a chunk that is here, verified. nullopt if a relay brought other bytes than the publisher has: the
  // chunk is then no longer here.
  std::optional<std::vector<RegionView>> Verified(std::uint32_t chunk);
  void Done(std::uint32_t chunk);
  void LookAtLink(const std::string& stage);
  // False until the publisher has signed something of the version, if it must: its manifest, at least.
  bool is_vouched_for() const { return vouched_for_ || !own_.peer().expects_signed(); }
  // Says that everything has been consumed.
  void End();

 private:
  bool WaitForChunk(const std::string& stage);
  bool TakeChunk(const std::string& stage, std::chrono::milliseconds step);
  std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step) {
    if (delta_ != nullptr) return PollDelta(stage, step);
    return relay_ != nullptr ? relay_->Poll(stage, step) : source_->Poll(stage, step);
  }
  std::optional<ArrivedChunk> PollDelta(const std::string& stage, std::chrono::milliseconds step);
  // Takes the rest dense: what is kept is not what the publisher takes it for.
  void LeaveDelta(const std::string& stage, const Error& error);
  void Take(wire::Message message, const std::string& stage);
  // Takes a message that announces chunks; if it must be signed, no sooner than that is.
  void TakeAnnounced(wire::Message message);
  void TakeSigned(const wire::SignedDigests& signed_digests);
  void Believe(const wire::Message& announced);
  void CheckMore(const wire::MoreDigests& more) const;
  void TakeAmax(const std::vector<wire::AxisAmax>& amaxes);
  void TakeSource(const wire::FetchFrom& from);
  void TakeFromPublisher();
  void NoteRelayed(std::uint32_t chunk);
  // Makes a call. If it fails with a relay, the relay is dropped instead of giving up the version.
  template <typename Call>
  void OrLoseRelay(const Call& call);
  void LoseRelay(const RelayPlace& relay, const Error& error);
  void DropSource();

  ChunkFetch& own_;
  const std::uint64_t offer_;
  std::vector<Digest> digests_;            // of the first chunks, as far as they have come
  std::vector<Hash> hashes_;               // of the same chunks, if they are signed
  std::optional<wire::Message> unsigned_;  // what announces chunks, and is not yet signed
  bool vouched_for_ = false;
  const std::uint32_t first_tensor_;
  FetchSink& sink_;
  std::set<std::uint32_t> known_amax_;  // tensors, in the sink's numbers
  std::set<std::string>& lost_relays_;
  std::unique_ptr<RelayFetch> relay_;  // null: chunks do not come from one
  std::unique_ptr<DeltaFetch> delta_;  // null: chunks come dense
  ChunkFetch* source_ = nullptr;  // the relay's, the deltas' or own_; null: the publisher has not said yet where from
  std::map<std::uint32_t, ArrivedChunk> here_;  // chunks that have come and are not yet delivered
  std::uint32_t done_ = 0;
  ProgressNote note_{own_.peer()};
};

}  // namespace layercast
