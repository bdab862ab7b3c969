// Where the chunks of a snapshot come from at the moment: its publisher, or a receiver that relays what it has taken.
// Used by the walk over a snapshot, which the publisher may move from one relay to another. Resources; one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "src/session/fetch/chunk_receiver.h"

namespace layercast {

class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  // How many chunks may be asked for: the schedule's first so many.
  virtual std::uint32_t ready() const = 0;
  virtual bool HasRoom() const = 0;
  virtual void Submit(std::uint32_t chunk) = 0;
  // Waits no longer than `step` for a chunk. Returns nullopt if none came.
  virtual std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step) = 0;
  // Says that the chunk has been consumed.
  virtual void Done(std::uint32_t chunk) = 0;
  // Keeps the session with this source alive, and throws if the source is gone.
  virtual void LookAtLink(const std::string& stage) = 0;
  // Says that everything has been consumed. Throws unless the bytes read were those that had been offered.
  virtual void End() = 0;
};

// Chunks from the publisher itself, which has all of them from the beginning. The receiver's link to it is looked at
// elsewhere.
class PublisherSource final : public ChunkSource {
 public:
  PublisherSource(ChunkReceiver& receiver, std::uint64_t offer) : receiver_(receiver), offer_(offer) {}

  std::uint32_t ready() const override { return static_cast<std::uint32_t>(receiver_.schedule().chunks().size()); }
  bool HasRoom() const override { return receiver_.window().HasRoom(); }
  void Submit(std::uint32_t chunk) override {
    const Schedule& schedule = receiver_.schedule();
    const Chunk& wanted = schedule.chunks()[chunk];
    receiver_.Submit(chunk, offer_, schedule.RegionsOf(wanted), wanted.num_bytes);
  }
  std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step) override {
    return receiver_.PollChunk(stage, step);
  }
  void Done(std::uint32_t chunk) override { receiver_.window().Done(chunk); }
  void LookAtLink(const std::string& /*stage*/) override {}
  void End() override { receiver_.ExpectOffered(offer_); }

 private:
  ChunkReceiver& receiver_;
  const std::uint64_t offer_;
};

}  // namespace layercast
