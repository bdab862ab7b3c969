#include "src/session/fetch_snapshot.h"

#include <map>
#include <utility>

namespace layercast {

void FetchSnapshot(const wire::Subscribed& subscribed, ChunkReceiver& receiver) {
  const Schedule& schedule = receiver.schedule();
  ChunkWindow& window = receiver.window();
  const std::size_t count = schedule.chunks().size();
  std::map<std::uint64_t, ChunkCompletion> early;  // completed before their turn
  std::size_t submitted = 0;
  for (std::uint32_t next = 0; next < count; ++next) {
    const std::string stage = receiver.StageOf(next);
    while (!early.contains(next)) {
      for (; submitted < count && window.HasRoom(); ++submitted) {
        const Chunk& chunk = schedule.chunks()[submitted];
        window.Submit(static_cast<std::uint32_t>(submitted), subscribed.offer_id, schedule.RegionsOf(chunk),
                      chunk.num_bytes);
      }
      ChunkCompletion completion = receiver.NextChunk(stage);
      early.emplace(completion.ticket, std::move(completion));
    }
    const ChunkCompletion completion = std::move(early.extract(next).mapped());
    receiver.Deliver(next, completion, subscribed.chunk_digests[next]);
    window.Done(next);
    receiver.ExpectSilence(stage);
  }
  window.ExpectOffered(subscribed.offer_id);
}

}  // namespace layercast
