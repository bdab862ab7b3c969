// The chunks of a snapshot that come from a relay, by a session with it beside the one with the publisher, which goes
// on. What comes is always copied out, even if the channel could hand out the relay's own memory, so that the relay
// cannot change it once it is verified. Used by SnapshotPart. Resource; one thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "src/session/fetch/chunk_fetch.h"
#include "src/session/fetch/publisher_session.h"
#include "src/session/relay_tree/relay_tree.h"
#include "src/wire/schedule.h"

namespace layercast {

class RelayFetch {
 public:
  // Opens a session with the relay at `place` for the schedule of `own`, whose chunks are wanted from number `first`
  // on. Throws what opening a session throws, the error that the relay refuses with, and kDeadlineExceeded if all this
  // takes longer than FetchOptions::peer_timeout.
  RelayFetch(const RelayPlace& place, const ChunkFetch& own, std::uint32_t first);
  ~RelayFetch() { session_.CloseChannel(); }  // before the slots that chunks under way go to

  const RelayPlace& place() const { return place_; }
  ChunkFetch& chunks() { return *chunks_; }
  // As ChunkFetch::Poll. The views are those of the chunk's regions in the version's schedule.
  std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step);
  // Keeps the session alive, and throws if the relay is gone.
  void LookAtLink(const std::string& stage);
  // Says to the relay how much came from it. It need not know.
  void TellTaken() noexcept;

 private:
  void Take(const wire::Message& message, const std::string& stage);

  const RelayPlace place_;
  const Schedule& schedule_;  // of the version
  const Schedule packed_;     // of the relay's offer: chunk i is its tensor i
  PublisherSession session_;
  std::optional<ChunkFetch> chunks_;  // over `packed_`
  const Deadline::Clock::time_point begin_ = Deadline::Clock::now();
  std::uint64_t bytes_ = 0;  // that came
  std::uint32_t next_;       // the first chunk that the relay did not have yet
};

}  // namespace layercast
