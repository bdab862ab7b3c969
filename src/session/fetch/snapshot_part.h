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
#include "src/session/fetch/chunk_receiver.h"
#include "src/session/fetch/chunk_source.h"
#include "src/session/fetch/progress_note.h"
#include "src/session/fetch/relay_source.h"

namespace layercast {

// What is needed to reach other receivers, should the publisher name one as a relay. Value.
struct RelayAccess {
  const FetchOptions& options;
  const ReceiverIdentity& self;
  // Endpoints of relays that have failed, with any publisher's part. None of them is tried again: opening one whose
  // host hangs takes seconds, and all leases run meanwhile.
  std::set<std::string>& lost;
};

class SnapshotPart {
 public:
  SnapshotPart(wire::Subscribed subscribed, ChunkReceiver& receiver, const RelayAccess& access);

  ChunkReceiver& receiver() { return receiver_; }
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
  // Says that everything has been consumed.
  void End();

 private:
  bool WaitForChunk(const std::string& stage);
  bool TakeChunk(const std::string& stage, std::chrono::milliseconds step);
  void Take(wire::Message message, const std::string& stage);
  void TakeDigests(const wire::MoreDigests& more);
  void TakeAmax(const std::vector<wire::AxisAmax>& amaxes);
  void TakeSource(const wire::FetchFrom& from);
  // Makes a call. If it fails with a relay, the relay is dropped instead of giving up the version.
  template <typename Call>
  void OrLoseRelay(const Call& call);
  void LoseRelay(const RelayPlace& relay, const Error& error);
  void DropSource();

  const std::uint64_t offer_;
  std::vector<Digest> digests_;         // of the first chunks, as far as they have come
  std::set<std::uint32_t> known_amax_;  // tensors, in the sink's numbers
  ChunkReceiver& receiver_;
  const RelayAccess access_;
  std::unique_ptr<ChunkSource> source_;         // null: the publisher has not said yet where from
  RelaySource* relay_ = nullptr;                // what source_ is, if it is one
  std::map<std::uint32_t, ArrivedChunk> here_;  // chunks that have come and are not yet delivered
  std::uint32_t submitted_ = 0;
  std::uint32_t done_ = 0;
  std::uint64_t bytes_done_ = 0;
  ProgressNote note_{receiver_};
};

}  // namespace layercast
