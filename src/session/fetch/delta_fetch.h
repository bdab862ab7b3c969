// The chunks of a snapshot that come as deltas of those that this receiver keeps, over the publisher's own channel.
// Each is applied as it comes, into the memory where this version is kept. Used by SnapshotPart. Resource; one thread
// only.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "src/session/deltas/delta_ask.h"
#include "src/session/fetch/chunk_fetch.h"
#include "src/wire/schedule.h"

namespace layercast {

class DeltaFetch {
 public:
  // `own` takes chunks from the publisher, and keeps them. Nothing may be under way there until this has gone.
  DeltaFetch(const OfferedDelta& delta, ChunkFetch& own);
  ~DeltaFetch();  // closes the channel if something is under way, before the slots that it goes to
  DeltaFetch(const DeltaFetch&) = delete;
  DeltaFetch& operator=(const DeltaFetch&) = delete;

  ChunkFetch& chunks() { return chunks_; }
  // As ChunkFetch::Poll. The views are those of the chunk's regions, of the version. Throws kFailedPrecondition if what
  // is kept is not what it should be, and kCorrupt if the frame is not right. Nothing was written then but where the
  // chunk goes.
  std::optional<ArrivedChunk> Poll(const std::string& stage, std::chrono::milliseconds step);
  // Waits until nothing is under way any more. Chunks that were polled must be done.
  void Drain(const std::string& stage);

 private:
  void Apply(ArrivedChunk& arrived);

  const OfferedDelta& delta_;
  ChunkFetch& own_;
  const Schedule packed_;  // of the deltas' offer: chunk i is its tensor i
  ChunkFetch chunks_;      // over `packed_`
};

}  // namespace layercast
