// Receives the chunks of one schedule over the data channel to one publisher, and checks each against its digest. Used
// by the walks over a snapshot and over a stream (fetch_snapshot.h, fetch_stream.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/session/fetch/fetch.h"
#include "src/session/fetch/publisher_session.h"
#include "src/session/link/chunk_window.h"
#include "src/session/link/trainer_cost.h"
#include "src/tensor/manifest/manifest.h"
#include "src/wire/schedule.h"

namespace layercast {

// What a receiver of chunks works with. Value; all that it refers to outlives the receiver.
struct ChunkReceiverParts {
  PublisherSession& publisher;
  const Schedule& schedule;
  std::span<const AmaxRequest> amax_requests;  // sorted by tensor
  std::uint32_t first_tensor;                  // the number that the publisher's first tensor has in the sink
  FetchSink& sink;
  FetchStats& stats;
  PublisherShare& share;  // of stats
  FailPoints& failpoints;
  ChunkWindow::Memory memory;
};

// Resource; one thread only. The channel's end is closed before it goes.
class ChunkReceiver {
 public:
  ChunkReceiver(const ChunkReceiverParts& parts, Deadline deadline)
      : parts_(parts), window_(parts.publisher.channel(), parts.memory), deadline_(deadline) {}

  const Manifest& manifest() const { return parts_.publisher.manifest(); }
  const Schedule& schedule() const { return parts_.schedule; }
  const PeerName& peer() const { return parts_.publisher.peer(); }
  const ChunkReceiverParts& parts() const { return parts_; }
  Deadline deadline() const { return deadline_; }
  FetchSink& sink() { return parts_.sink; }
  ChunkWindow& window() { return window_; }
  const ChunkWindow& window() const { return window_; }

  // How long one poll of a channel or a link may take before the others are polled.
  static constexpr std::chrono::milliseconds kPollStep{100};

  // The next message of the control link, if one comes within `step`; otherwise nullopt. The wait counts as receiving.
  std::optional<wire::Message> PollMessage(const std::string& stage, std::chrono::milliseconds step = kPollStep);
  void Send(const wire::Message& message) { parts_.publisher.link().Send(message); }
  // Says that the chunk was verified, so receivers that take from this one may have it.
  void NoteKept(std::uint32_t chunk) {
    if (parts_.memory.kept != nullptr) parts_.memory.kept->Ready(chunk);
  }
  void NoteRelayed(std::uint32_t chunk, const std::string& relay);
  void NoteCost(const wire::TrainerCost& cost) { Note(cost, parts_.share); }

  void Submit(std::uint32_t chunk, std::uint64_t offer, std::span<const Region> regions, std::uint64_t bytes);
  // Waits no longer than `step` for a chunk. On nullopt, look at the link before the next call: KeepMessages (stream)
  // or MessageThatCame (snapshot).
  std::optional<ArrivedChunk> PollChunk(const std::string& stage, std::chrono::milliseconds step = kPollStep);
  // Keeps the session alive and stores what has come for PollMessage: a stream's messages may be ahead of its chunks.
  // Throws what PublisherLink::TakeIn throws.
  void KeepMessages(const std::string& stage);
  // A message that has come already; does not wait. Looks at the link's state as PollMessage does.
  std::optional<wire::Message> MessageThatCame(const std::string& stage) {
    return parts_.publisher.link().Receive(Deadline(Deadline::Clock::now()), stage);
  }
  // Throws unless views of this offer still show its bytes (ChunkWindow::ExpectOffered).
  void ExpectOffered(std::uint64_t offer);
  // The chunk's views, after they were checked against its digest. Valid until the next call.
  std::vector<RegionView> Verified(ArrivedChunk& arrived, const Digest& expected);
  // Whether magnitudes of that tensor were asked for.
  bool AskedAmaxOf(std::uint32_t tensor) const { return FindRequest(tensor) != nullptr; }
  // Throws unless these are magnitudes, and as many of them were asked for of that tensor.
  void CheckAmax(std::uint32_t tensor, std::span<const float> amax) const;
  // Throws unless this can be the magnitude of a whole tensor: -1 says that it is not known.
  void CheckTensorAmax(std::uint32_t tensor, float amax) const;

  // "chunk 3 of 17 of run-17@42 over shm"
  std::string StageOf(std::size_t chunk) const;
  // Throws an error about what the publisher sent.
  [[noreturn]] void Refuse(const std::string& what) const;

 private:
  template <typename Call>
  auto OverChannel(const Call& call);
  const AmaxRequest* FindRequest(std::uint32_t tensor) const;  // null: nothing was asked for
  [[noreturn]] void RefuseAmax(std::uint32_t tensor, float amax) const;
  void CheckDigest(std::uint32_t chunk, const Digest& expected, const Digest& got) const;

  const ChunkReceiverParts parts_;
  ChunkWindow window_;
  const Deadline deadline_;
};

}  // namespace layercast
