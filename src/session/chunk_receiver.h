// Receives the chunks of one schedule over a session's data channel, checks each against its digest, and hands them on
// to the sink. What the walks over a snapshot and over a stream (fetch_snapshot.h, fetch_stream.h) share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/session/chunk_window.h"
#include "src/session/fetch.h"
#include "src/session/publisher_link.h"
#include "src/tensor/manifest.h"
#include "src/wire/schedule.h"

namespace layercast {

// What a receiver of chunks works with; all of it outlives the receiver.
struct ChunkReceiverParts {
  const Manifest& manifest;
  const Schedule& schedule;
  std::span<const AmaxRequest> amax_requests;
  PublisherLink& link;
  FetchingEnd& channel;
  FetchSink& sink;
  FetchStats& stats;
  FailPoints& failpoints;
};

// Resource; one thread only. The channel's end is closed before it goes.
class ChunkReceiver {
 public:
  ChunkReceiver(const ChunkReceiverParts& parts, std::size_t slots, MemoryResource& memory, Deadline deadline)
      : parts_(parts), window_(parts.channel, slots, memory), deadline_(deadline) {}

  const Manifest& manifest() const { return parts_.manifest; }
  const Schedule& schedule() const { return parts_.schedule; }
  FetchSink& sink() { return parts_.sink; }
  ChunkWindow& window() { return window_; }

  // The next message of the control link; its wait counts as receiving.
  wire::Message NextMessage(const std::string& stage);
  void Send(const wire::Message& message) { parts_.link.Send(message); }
  void CountTensor() { ++parts_.stats.tensors; }

  // Waits for one chunk, looking at the control link in between: a dead publisher shows there, whatever the channel.
  ChunkCompletion NextChunk(const std::string& stage);
  // Throws if the publisher says anything now, when only chunks are due.
  void ExpectSilence(const std::string& stage);
  // Checks the chunk against its digest, and hands it on.
  void Deliver(std::uint32_t chunk, const ChunkCompletion& completion, const Digest& expected);
  // Throws unless so many magnitudes of that tensor were asked for.
  void CheckAmax(std::uint32_t tensor, std::size_t values) const;

  // "chunk 3 of 17 of run-17@42 over shm"
  std::string StageOf(std::size_t chunk) const;
  // An error about what the publisher sent.
  [[noreturn]] void Refuse(const std::string& what) const;

 private:
  void CheckDigest(std::uint32_t chunk, const Digest& expected, const Digest& got) const;

  const ChunkReceiverParts parts_;
  ChunkWindow window_;
  const Deadline deadline_;
};

}  // namespace layercast
