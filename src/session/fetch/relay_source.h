// Chunks from a relay, by a session with it beside the one with the publisher, which goes on. What comes is always
// copied out, even if the channel could hand out the relay's own memory, so that the relay cannot change it once it is
// verified. Used by SnapshotPart. Resource; one thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/session/fetch/chunk_source.h"
#include "src/session/fetch/publisher_session.h"
#include "src/session/relays/relay_tree.h"
#include "src/wire/schedule.h"

namespace layercast {

class RelaySource final : public ChunkSource {
 public:
  // Opens a session with the relay at `place` for the schedule of `receiver`. Throws what opening a session throws, the
  // error that the relay refuses with, and kDeadlineExceeded if all this takes longer than options.peer_timeout.
  RelaySource(const RelayPlace& place, const ChunkReceiver& receiver, const FetchOptions& options,
              const ReceiverIdentity& self);
  ~RelaySource() override { session_.CloseChannel(); }  // before the slots that chunks under way go to

  const RelayPlace& place() const { return place_; }

  std::uint32_t ready() const override { return ready_; }
  bool HasRoom() const override { return chunks_->window().HasRoom(); }
  void Submit(std::uint32_t chunk) override;
  std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step) override;
  void Done(std::uint32_t chunk) override { chunks_->window().Done(chunk); }
  void LookAtLink(const std::string& stage) override;
  void End() override {}

 private:
  void Take(const wire::Message& message, const std::string& stage);

  const RelayPlace place_;
  const Schedule& schedule_;  // of the version
  const Schedule packed_;     // of the relay's offer: chunk i is its tensor i
  PublisherSession session_;
  std::optional<ChunkReceiver> chunks_;  // over `packed_`
  std::uint32_t ready_ = 0;
};

}  // namespace layercast
