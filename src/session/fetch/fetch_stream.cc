#include "src/session/fetch/fetch_stream.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/session/fetch/progress_note.h"

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

// Checks that every publisher is there, those that have ended too, while one is waited for.
using LookAtLinks = std::function<void(const std::string& stage)>;

// The stream of one publisher.
class StreamPart {
 public:
  StreamPart(ChunkReceiver& receiver, const SharedSchedule& schedule, std::size_t publisher, LookAtLinks look_at_links)
      : receiver_(receiver),
        schedule_(schedule),
        publisher_(publisher),
        look_at_links_(std::move(look_at_links)),
        chunks_of_(GroupByTensor(receiver.schedule())) {}

  bool ended() const { return ended_; }
  std::uint64_t bytes_left() const { return receiver_.schedule().total_bytes() - bytes_; }
  ChunkReceiver& receiver() { return receiver_; }
  void TellProgress() { note_.Tell(bytes_); }

  std::string Stage() const {
    return "waiting for tensor " + std::to_string(tensors_ + 1) + " of the stream of " +
           receiver_.manifest().version().ToString();
  }

  void Take(const wire::Message& message) {
    if (const auto* end = std::get_if<wire::StreamEnd>(&message)) return CheckEnd(*end);
    const auto* ready = std::get_if<wire::TensorReady>(&message);
    if (ready == nullptr || ready->tensor >= receiver_.manifest().size()) {
      receiver_.Refuse("sent '" + std::string(wire::MessageName(message)) + "' out of place while " + Stage());
    }
    TakeTensor(*ready);
  }

 private:
  void TakeTensor(const wire::TensorReady& ready) {
    const std::uint32_t number = receiver_.parts().first_tensor + ready.tensor;
    ++tensors_;
    receiver_.CheckTensorAmax(ready.tensor, ready.amax);
    receiver_.sink().OnTensor(number, ready.amax, ready.digest);
    if (receiver_.AskedAmaxOf(ready.tensor) || !ready.axis_amax.empty()) {
      receiver_.CheckAmax(ready.tensor, ready.axis_amax);
      receiver_.sink().OnAxisAmax(number, ready.axis_amax);
    }
    const auto wanted = chunks_of_.find(ready.tensor);
    if (wanted != chunks_of_.end()) TakeChunks(wanted->second, ready);
    receiver_.Send(wire::TensorDone{ready.sequence});
  }

  // Takes chunks in the order in which they come, because a layer takes its pieces in any order.
  void TakeChunks(const std::vector<std::uint32_t>& chunks, const wire::TensorReady& ready) {
    if (ready.chunk_digests.size() != chunks.size()) {
      receiver_.Refuse("sent " + std::to_string(ready.chunk_digests.size()) + " chunk digests of '" +
                       receiver_.manifest().entry(ready.tensor).spec.name + "', expected " +
                       std::to_string(chunks.size()));
    }
    std::size_t submitted = 0;
    for (const std::uint32_t chunk : chunks) {
      ArrivedChunk arrived = NextChunk(chunk, [&] {
        for (; submitted < chunks.size() && receiver_.window().HasRoom(); ++submitted) {
          Submit(chunks[submitted], ready.offer_id);
        }
      });
      const auto of_tensor = std::ranges::lower_bound(chunks, arrived.chunk) - chunks.begin();
      const Digest& expected = ready.chunk_digests[static_cast<std::size_t>(of_tensor)];
      receiver_.sink().OnChunk(schedule_.WholeOf(publisher_, arrived.chunk), receiver_.Verified(arrived, expected));
      receiver_.window().Done(arrived.chunk);
      bytes_ += receiver_.schedule().chunks()[arrived.chunk].num_bytes;
    }
    receiver_.ExpectOffered(ready.offer_id);
  }

  // Waits for any of the chunks that were asked for. `chunk` is the one that errors name.
  template <typename Ask>
  ArrivedChunk NextChunk(std::uint32_t chunk, const Ask& ask) {
    const std::string stage = receiver_.StageOf(chunk);
    while (true) {
      std::optional<ArrivedChunk> arrived = NamingTensor(chunk, [&] {
        ask();
        const auto begin = Deadline::Clock::now();
        std::optional<ArrivedChunk> came = receiver_.PollChunk(stage);
        note_.WaitedSince(begin);
        return came;
      });
      look_at_links_(stage);
      if (arrived) return *std::move(arrived);
    }
  }

  // Asks for a chunk from `offer`. A stream's offer holds one tensor, which has number 0 there.
  void Submit(std::uint32_t index, std::uint64_t offer) {
    const Chunk& chunk = receiver_.schedule().chunks()[index];
    const auto planned = receiver_.schedule().RegionsOf(chunk);
    std::vector<Region> regions(planned.begin(), planned.end());
    for (Region& region : regions) region.tensor = 0;
    receiver_.Submit(index, offer, regions, chunk.num_bytes);
  }

  // Makes a call of the channel, whose errors then name the tensor: the channel knows only its number in the offer. If
  // a region is missing there although it was in the manifest, the publisher does not hold what it promised.
  template <typename Receive>
  std::optional<ArrivedChunk> NamingTensor(std::uint32_t chunk, const Receive& receive) const {
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

  // Checks the counts alone. The pipeline names a chunk that never came, because it knows the tensor's layer.
  void CheckEnd(const wire::StreamEnd& end) {
    ended_ = true;
    receiver_.NoteCost(end.cost);
    if (end.tensors == tensors_) return;
    receiver_.Refuse("says it sent " + std::to_string(end.tensors) + " tensors, got " + std::to_string(tensors_));
  }

  ChunkReceiver& receiver_;
  const SharedSchedule& schedule_;
  const std::size_t publisher_;
  const LookAtLinks look_at_links_;
  const ChunksByTensor chunks_of_;
  ProgressNote note_{receiver_};
  std::uint32_t tensors_ = 0;  // how many came
  std::uint64_t bytes_ = 0;    // of the tensors that came
  bool ended_ = false;
};

class StreamFetch {
 public:
  StreamFetch(std::span<const std::unique_ptr<ChunkReceiver>> receivers, const SharedSchedule& schedule) {
    for (std::size_t i = 0; i < receivers.size(); ++i) {
      parts_.push_back(std::make_unique<StreamPart>(*receivers[i], schedule, i,
                                                    [this](const std::string& stage) { LookAtLinks(stage); }));
      open_.push_back(parts_.back().get());
    }
  }

  void Run() {
    while (!open_.empty()) {
      std::ranges::stable_sort(open_, std::greater(), &StreamPart::bytes_left);
      if (!TakeWhatCame()) Await(*open_.front());
      std::erase_if(open_, [](const StreamPart* part) { return part->ended(); });
      if (!open_.empty()) LookAtLinks(open_.front()->Stage());
    }
  }

 private:
  // How long to wait for one of several publishers while nothing has come from any.
  static constexpr std::chrono::milliseconds kTurn{2};

  bool TakeWhatCame() {
    for (StreamPart* part : open_) {
      if (const std::optional<wire::Message> message = part->receiver().MessageThatCame(part->Stage())) {
        part->Take(*message);
        return true;
      }
    }
    return false;
  }

  void Await(StreamPart& part) {
    const auto step = open_.size() == 1 ? ChunkReceiver::kPollStep : kTurn;
    if (const std::optional<wire::Message> message = part.receiver().PollMessage(part.Stage(), step)) {
      part.Take(*message);
    }
  }

  void LookAtLinks(const std::string& stage) {
    for (const auto& part : parts_) {
      part->receiver().KeepMessages(stage);
      if (!part->ended()) part->TellProgress();
    }
  }

  std::vector<std::unique_ptr<StreamPart>> parts_;  // by publisher
  std::vector<StreamPart*> open_;                   // those that have not ended
};

}  // namespace

void FetchStream(std::span<const std::unique_ptr<ChunkReceiver>> receivers, const SharedSchedule& schedule) {
  StreamFetch(receivers, schedule).Run();
}

}  // namespace layercast
