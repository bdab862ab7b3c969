#include "src/session/fetch/stream_fetch.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/session/fetch/progress_note.h"
#include "src/session/link/trainer_cost.h"

namespace layercast {
namespace {

// How long to wait for one of several publishers while nothing has come from any.
constexpr std::chrono::milliseconds kTurn{2};

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

}  // namespace

// The stream of one publisher.
class StreamFetch::Part {
 public:
  Part(StreamFetch& fetch, ChunkFetch& chunks, std::uint32_t publisher)
      : fetch_(fetch), chunks_(chunks), publisher_(publisher), chunks_of_(GroupByTensor(chunks.schedule())) {}

  ChunkFetch& chunks() { return chunks_; }
  bool ended() const { return ended_; }
  std::uint64_t bytes_left() const { return chunks_.schedule().total_bytes() - note_.bytes(); }

  std::string Stage() const {
    return "waiting for tensor " + std::to_string(tensors_ + 1) + " of the stream of " +
           chunks_.manifest().version().ToString();
  }

  void Take(const wire::Message& message) {
    if (const auto* end = std::get_if<wire::StreamEnd>(&message)) return CheckEnd(*end);
    const auto* ready = std::get_if<wire::TensorReady>(&message);
    if (ready == nullptr || ready->tensor >= chunks_.manifest().size()) {
      chunks_.peer().Refuse("sent '" + std::string(wire::MessageName(message)) + "' out of place while " + Stage());
    }
    TakeTensor(*ready);
  }

  // Keeps the session alive, stores what has come for later, as messages may be ahead of chunks, and says how far this
  // receiver is.
  void LookAtLink(const std::string& stage) {
    chunks_.peer().link().TakeIn(chunks_.manifest().size() + 1, stage);  // one for each tensor, and one for the end
    if (!ended_) note_.Tell();
  }

 private:
  void TakeTensor(const wire::TensorReady& ready) {
    const std::uint32_t number = fetch_.schedule_.numbers().FirstOf(publisher_) + ready.tensor;
    PublisherSession& publisher = chunks_.peer();
    ++tensors_;
    publisher.CheckTensorAmax(ready.tensor, ready.amax);
    fetch_.sink_.OnTensor(number, ready.amax, ready.digest);
    if (publisher.AskedAmaxOf(ready.tensor) || !ready.axis_amax.empty()) {
      publisher.CheckAmax(ready.tensor, ready.axis_amax);
      fetch_.sink_.OnAxisAmax(number, ready.axis_amax);
    }
    const auto wanted = chunks_of_.find(ready.tensor);
    if (wanted != chunks_of_.end()) TakeChunks(wanted->second, ready);
    publisher.link().Send(wire::TensorDone{ready.sequence});
  }

  // Takes chunks in the order in which they come, because a layer takes its pieces in any order.
  void TakeChunks(const std::vector<std::uint32_t>& chunks, const wire::TensorReady& ready) {
    if (ready.chunk_digests.size() != chunks.size()) {
      chunks_.peer().Refuse("sent " + std::to_string(ready.chunk_digests.size()) + " chunk digests of '" +
                            chunks_.manifest().entry(ready.tensor).spec.name + "', expected " +
                            std::to_string(chunks.size()));
    }
    for (const std::uint32_t chunk : chunks) chunks_.Want(ready.offer_id, chunk);
    for (const std::uint32_t chunk : chunks) {
      ArrivedChunk arrived = NextChunk(chunk);
      const auto of_tensor = std::ranges::lower_bound(chunks, arrived.chunk) - chunks.begin();
      const Digest& expected = ready.chunk_digests[static_cast<std::size_t>(of_tensor)];
      fetch_.sink_.OnChunk(fetch_.schedule_.WholeOf(publisher_, arrived.chunk), chunks_.Verified(arrived, expected));
      chunks_.Done(arrived.chunk);
      note_.Used(chunks_.schedule().chunks()[arrived.chunk].num_bytes);
    }
    chunks_.ExpectOffered(ready.offer_id);
  }

  // Waits for any of the chunks that are wanted. `chunk` is the one that errors name.
  ArrivedChunk NextChunk(std::uint32_t chunk) {
    const std::string stage = chunks_.StageOf(chunk);
    while (true) {
      std::optional<ArrivedChunk> arrived = NamingTensor(chunk, [&] {
        chunks_.Request();
        const auto begin = Deadline::Clock::now();
        std::optional<ArrivedChunk> came = chunks_.Poll(stage);
        note_.WaitedSince(begin);
        return came;
      });
      fetch_.LookAtLinks(stage);
      if (arrived) return *std::move(arrived);
    }
  }

  // Makes a call of the channel, whose errors then name the tensor: the channel knows only its number in the offer. If
  // a region is missing there although it was in the manifest, the publisher does not hold what it promised.
  template <typename Receive>
  std::optional<ArrivedChunk> NamingTensor(std::uint32_t chunk, const Receive& receive) const {
    try {
      return receive();
    } catch (const Error& error) {
      const bool short_tensor = error.code() == ErrorCode::kInvalidArgument;
      const Schedule& schedule = chunks_.schedule();
      const std::uint32_t tensor = schedule.RegionsOf(schedule.chunks()[chunk]).front().tensor;
      throw Error(short_tensor ? ErrorCode::kCorrupt : error.code(),
                  "'" + chunks_.manifest().entry(tensor).spec.name + "': " + error.what());
    }
  }

  // Checks the counts alone. The pipeline names a chunk that never came, because it knows the tensor's layer.
  void CheckEnd(const wire::StreamEnd& end) {
    ended_ = true;
    Note(end.cost, chunks_.peer().share());
    if (end.tensors == tensors_) return;
    chunks_.peer().Refuse("says it sent " + std::to_string(end.tensors) + " tensors, got " + std::to_string(tensors_));
  }

  StreamFetch& fetch_;
  ChunkFetch& chunks_;
  const std::uint32_t publisher_;
  const ChunksByTensor chunks_of_;
  ProgressNote note_{chunks_.peer()};
  std::uint32_t tensors_ = 0;  // how many came
  bool ended_ = false;
};

StreamFetch::StreamFetch(std::span<const std::unique_ptr<ChunkFetch>> chunks, const SharedSchedule& schedule,
                         FetchSink& sink)
    : schedule_(schedule), sink_(sink) {
  for (std::uint32_t i = 0; i < chunks.size(); ++i) {
    parts_.push_back(std::make_unique<Part>(*this, *chunks[i], i));
    open_.push_back(parts_.back().get());
  }
}

StreamFetch::~StreamFetch() = default;

void StreamFetch::Run() {
  while (!open_.empty()) {
    std::ranges::stable_sort(open_, std::greater(), &Part::bytes_left);
    if (!TakeWhatCame()) Await(*open_.front());
    std::erase_if(open_, [](const Part* part) { return part->ended(); });
    if (!open_.empty()) LookAtLinks(open_.front()->Stage());
  }
}

bool StreamFetch::TakeWhatCame() {
  for (Part* part : open_) {
    if (const std::optional<wire::Message> message = part->chunks().MessageThatCame(part->Stage())) {
      part->Take(*message);
      return true;
    }
  }
  return false;
}

void StreamFetch::Await(Part& part) {
  const auto step = open_.size() == 1 ? ChunkFetch::kPollStep : kTurn;
  if (const std::optional<wire::Message> message = part.chunks().PollMessage(part.Stage(), step)) part.Take(*message);
}

void StreamFetch::LookAtLinks(const std::string& stage) {
  for (const auto& part : parts_) part->LookAtLink(stage);
}

}  // namespace layercast
