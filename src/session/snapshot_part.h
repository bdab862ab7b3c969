// One publisher's part of a snapshot, as a receiver takes it: chunks under way as far ahead as its credits reach,
// whatever other publishers do, from the publisher or from wherever that sends us, each held against the publisher's
// digest. Used by the walk over a snapshot. Resource; one thread only.
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
#include "src/session/chunk_receiver.h"
#include "src/session/chunk_source.h"
#include "src/session/relay_source.h"

namespace layercast {

// How other receivers are reached, should the publisher send us to one.
struct RelayAccess {
  const FetchOptions& options;
  const ReceiverIdentity& self;
};

class SnapshotPart {
 public:
  SnapshotPart(wire::Subscribed subscribed, ChunkReceiver& receiver, const RelayAccess& access);

  ChunkReceiver& receiver() { return receiver_; }
  // Whether that chunk is here, and what its digest must be is known.
  bool Has(std::uint32_t chunk) const { return here_.contains(chunk) && digests_.size() > chunk; }
  // Whether the sink has the magnitudes that were asked of that tensor, in the sink's numbers.
  bool HasAmax(std::uint32_t tensor) const { return known_amax_.contains(tensor); }
  void Request();
  // Waits a little for what that chunk lacks. False: nothing came, and it is time to look at other links.
  bool PollFor(std::uint32_t chunk);
  // Waits a little for a message of the publisher's.
  void PollLink(const std::string& stage);
  // Takes what has come besides, without waiting, where digests queue: then theirs are under way before that of an
  // earlier chunk is waited for, and before its consumer's work is queued.
  void TakeLanded();
  // The views of a chunk that it has; nullopt where a relay brought other bytes than the publisher has: then it has it
  // no more.
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
  // Calls, and loses the relay where that goes wrong with one: it is no reason to give up.
  template <typename Call>
  void OrLoseRelay(const Call& call);
  void LoseRelay(const RelayPlace& relay, const Error& error);
  void DropSource();
  void TellProgress();

  const std::uint64_t offer_;
  std::vector<Digest> digests_;         // of the first chunks
  std::set<std::uint32_t> known_amax_;  // tensors, in the sink's numbers
  ChunkReceiver& receiver_;
  const RelayAccess access_;
  std::unique_ptr<ChunkSource> source_;         // null: the publisher has not said yet where from
  RelaySource* relay_ = nullptr;                // what source_ is, if it is one
  std::map<std::uint32_t, ArrivedChunk> here_;  // and not yet delivered
  std::uint32_t submitted_ = 0;
  std::uint32_t done_ = 0;
  std::uint64_t bytes_done_ = 0;
  const Deadline::Clock::time_point begin_ = Deadline::Clock::now();
  Deadline::Clock::time_point told_ = begin_;  // how it gets on
  Deadline::Clock::duration waited_{0};        // for chunks
};

}  // namespace layercast
