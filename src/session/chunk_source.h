// Where the chunks of a snapshot come from at the moment: its publisher, or a receiver that relays what it has taken.
// Used by the walk over a snapshot, which may be sent from one relay to another. Resources; one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "src/session/chunk_receiver.h"

namespace layercast {

class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  // How many chunks, from the first on, may be asked for.
  virtual std::uint32_t ready() const = 0;
  virtual bool HasRoom() const = 0;
  virtual void Submit(std::uint32_t chunk) = 0;
  // Waits no longer than `step`; nullopt: nothing came.
  virtual std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step) = 0;
  // The chunk has been consumed.
  virtual void Done(std::uint32_t chunk) = 0;
  // Keeps the session there alive, and sees that it is.
  virtual void LookAtLink(const std::string& stage) = 0;
  // Everything has been consumed: throws unless it was what had been offered.
  virtual void End() = 0;
};

// From the publisher itself: all of it is there from the beginning. The receiver's link is looked at elsewhere.
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
