#include "src/session/fetch/delta_fetch.h"

#include <cstdint>
#include <span>
#include <vector>

#include "layercast/error.h"
#include "src/delta/delta_frame.h"
#include "src/session/chunks/kept_chunks.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {
namespace {

Schedule FramesOf(const OfferedDelta& delta) {
  Schedule frames;
  for (std::uint32_t i = 0; i < delta.chunk_bytes.size(); ++i) {
    frames.Add(
        std::vector<Region>{{.tensor = i, .offset = 0, .row_bytes = delta.chunk_bytes[i], .rows = 1, .stride = 0}});
  }
  return frames;
}

// Frames lie in slots of this receiver's own, where nobody changes them once they are checked.
ChunkWindow::Memory ForFrames(ChunkWindow::Memory memory) {
  memory.places.device = nullptr;
  memory.kept = nullptr;
  memory.copies_out = true;
  return memory;
}

}  // namespace

DeltaFetch::DeltaFetch(const OfferedDelta& delta, ChunkFetch& own)
    : delta_(delta),
      own_(own),
      packed_(FramesOf(delta)),
      chunks_(own.peer(), packed_, ForFrames(own.memory()), own.stats(), own.deadline()) {
  for (std::uint32_t chunk = 0; chunk < packed_.chunks().size(); ++chunk) chunks_.Want(delta.offer, chunk);
}

DeltaFetch::~DeltaFetch() {
  if (!chunks_.nothing_under_way()) own_.peer().CloseChannel();
}

std::optional<ArrivedChunk> DeltaFetch::Poll(const std::string& stage, std::chrono::milliseconds step) {
  std::optional<ArrivedChunk> arrived = chunks_.Poll(stage, step);
  if (!arrived) return arrived;
  const auto begin = Deadline::Clock::now();
  try {
    Apply(*arrived);
  } catch (const Error& error) {
    chunks_.Done(arrived->chunk);
    // Whatever else is wrong with it, the frame is not what the publisher made of these bytes.
    const bool other_base = error.code() == ErrorCode::kFailedPrecondition;
    throw Error(other_base ? error.code() : ErrorCode::kCorrupt,
                own_.peer().peer().text() + ": " + own_.StageOf(arrived->chunk) + ": " + error.what());
  }
  own_.stats().verify_seconds += std::chrono::duration<double>(Deadline::Clock::now() - begin).count();
  return arrived;
}

// The digest of the result is computed as it is written, and is what the frame says, or this throws. It is held against
// the version's as any chunk's is.
void DeltaFetch::Apply(ArrivedChunk& arrived) {
  const std::span<const std::byte> frame(arrived.views.front().base, arrived.views.front().num_bytes());
  const std::span<std::byte> into = own_.memory().kept->Place(arrived.chunk);
  ApplyDeltaInto(frame, {.bytes = delta_.base->Place(arrived.chunk)}, into);
  arrived.views = PackedViews(own_.schedule().RegionsOf(own_.schedule().chunks()[arrived.chunk]), into);
  arrived.digest = [digest = ReadDeltaHeader(frame).result] { return digest; };
}

void DeltaFetch::Drain(const std::string& stage) {
  while (!chunks_.nothing_under_way()) {
    if (const std::optional<ArrivedChunk> arrived = chunks_.Poll(stage)) chunks_.Done(arrived->chunk);
  }
}

}  // namespace layercast
