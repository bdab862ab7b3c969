#include "src/session/fetch_stream.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {
namespace {

using ChunksByTensor = std::map<std::uint32_t, std::vector<std::uint32_t>>;

ChunksByTensor GroupByTensor(const Schedule& schedule) {
  ChunksByTensor chunks_of;
  for (std::uint32_t i = 0; i < schedule.chunks().size(); ++i) {
    const auto regions = schedule.RegionsOf(schedule.chunks()[i]);
    LAYERCAST_CHECK(!regions.empty());
    chunks_of[regions.front().tensor].push_back(i);
  }
  return chunks_of;
}

class StreamFetch {
 public:
  explicit StreamFetch(ChunkReceiver& receiver) : receiver_(receiver), chunks_of_(GroupByTensor(receiver.schedule())) {}

  void Run() {
    while (true) {
      const std::string stage = "waiting for tensor " + std::to_string(tensors_ + 1) + " of the stream of " +
                                receiver_.manifest().version().ToString();
      const wire::Message message = receiver_.NextMessage(stage);
      if (const auto* end = std::get_if<wire::StreamEnd>(&message)) return CheckEnd(*end);
      const auto* ready = std::get_if<wire::TensorReady>(&message);
      if (ready == nullptr || ready->tensor >= receiver_.manifest().size()) {
        receiver_.Refuse("sent '" + std::string(wire::MessageName(message)) + "' out of place while " + stage);
      }
      TakeTensor(*ready);
    }
  }

 private:
  void TakeTensor(const wire::TensorReady& ready) {
    ++tensors_;
    receiver_.CountTensor();
    receiver_.sink().OnTensor(ready.tensor, ready.amax, ready.digest);
    if (!ready.axis_amax.empty()) {
      receiver_.CheckAmax(ready.tensor, ready.axis_amax.size());
      receiver_.sink().OnAxisAmax(ready.tensor, ready.axis_amax);
    }
    const auto wanted = chunks_of_.find(ready.tensor);
    if (wanted != chunks_of_.end()) TakeChunks(wanted->second, ready);
    receiver_.Send(wire::TensorDone{ready.sequence});
  }

  // In the order in which they come: a layer takes its pieces in any.
  void TakeChunks(const std::vector<std::uint32_t>& chunks, const wire::TensorReady& ready) {
    if (ready.chunk_digests.size() != chunks.size()) {
      receiver_.Refuse("sent " + std::to_string(ready.chunk_digests.size()) + " chunk digests of '" +
                       receiver_.manifest().entry(ready.tensor).spec.name + "', expected " +
                       std::to_string(chunks.size()));
    }
    std::size_t submitted = 0;
    for (const std::uint32_t chunk : chunks) {
      const ChunkCompletion completion = NamingTensor(chunk, [&] {
        for (; submitted < chunks.size() && receiver_.window().HasRoom(); ++submitted) {
          Submit(chunks[submitted], ready.offer_id);
        }
        return receiver_.NextChunk(receiver_.StageOf(chunk));
      });
      const auto index = static_cast<std::uint32_t>(completion.ticket);
      const auto of_tensor = std::ranges::lower_bound(chunks, index) - chunks.begin();
      receiver_.sink().OnChunk(
          index, receiver_.Verified(index, completion, ready.chunk_digests[static_cast<std::size_t>(of_tensor)]));
      receiver_.window().Done(index);
    }
    receiver_.ExpectOffered(ready.offer_id);
  }

  // An offer of a stream holds one tensor, number 0.
  void Submit(std::uint32_t index, std::uint64_t offer) {
    const Chunk& chunk = receiver_.schedule().chunks()[index];
    const auto planned = receiver_.schedule().RegionsOf(chunk);
    std::vector<Region> regions(planned.begin(), planned.end());
    for (Region& region : regions) region.tensor = 0;
    receiver_.Submit(index, offer, regions, chunk.num_bytes);
  }

  // The channel knows the tensor by a number of the offer alone. A region that is not there was in the manifest: then
  // the publisher does not hold what it promised.
  template <typename Receive>
  ChunkCompletion NamingTensor(std::uint32_t chunk, const Receive& receive) const {
    try {
      return receive();
    } catch (const Error& error) {
      const bool short_tensor = error.code() == ErrorCode::kInvalidArgument;
      const Schedule& schedule = receiver_.schedule();
      const std::uint32_t tensor = schedule.RegionsOf(schedule.chunks()[chunk]).front().tensor;
      throw Error(short_tensor ? ErrorCode::kCorrupt : error.code(),
                  "'" + receiver_.manifest().entry(tensor).spec.name + "': " + error.what());
    }
  }

  // A chunk that never came is the pipeline's to name: it knows the tensor's layer.
  void CheckEnd(const wire::StreamEnd& end) const {
    receiver_.NoteCost(end.cost);
    if (end.tensors == tensors_) return;
    receiver_.Refuse("says it sent " + std::to_string(end.tensors) + " tensors, got " + std::to_string(tensors_));
  }

  ChunkReceiver& receiver_;
  const ChunksByTensor chunks_of_;
  std::uint32_t tensors_ = 0;  // that came
};

}  // namespace

void FetchStream(ChunkReceiver& receiver) { StreamFetch(receiver).Run(); }

}  // namespace layercast
