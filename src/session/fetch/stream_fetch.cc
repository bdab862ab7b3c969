#include "src/session/fetch/stream_fetch.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/session/fetch/progress_note.h"
#include "src/session/link/trainer_cost.h"

namespace layercast {
namespace {

// How long to wait for one of several publishers while nothing has come from any.
constexpr std::chrono::milliseconds kTurn{2};
// How long more tensors may come before the publisher is told of those that were taken. It waits for that only where
// its window is full.
constexpr std::chrono::milliseconds kMoreMayCome{1};

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
  bool ended() const { return ended_ && ready_.empty(); }
  bool awaits_chunks() const { return !of_chunk_.empty(); }
  std::uint64_t bytes_left() const { return chunks_.schedule().total_bytes() - note_.bytes(); }

  std::string Stage() const {
    return "waiting for tensor " + std::to_string(tensors_ + 1) + " of the stream of " +
           chunks_.manifest().version().ToString();
  }

  void Take(const wire::Message& message) {
    if (const auto* signed_digests = std::get_if<wire::SignedDigests>(&message)) return TakeSigned(*signed_digests);
    if (unsigned_) RefuseOutOfPlace(message);
    if (const auto* end = std::get_if<wire::StreamEnd>(&message)) return CheckEnd(*end);
    const auto* ready = std::get_if<wire::TensorsReady>(&message);
    if (ready == nullptr || ready->tensors.empty()) RefuseOutOfPlace(message);
    if (chunks_.peer().expects_signed()) {
      unsigned_ = *ready;
    } else {
      TakeReady(*ready, {});
    }
  }

  // Takes one of the chunks that are awaited, if one comes within `step`: in the order in which they come, because a
  // layer takes its pieces in any order.
  bool TakeChunk(std::chrono::milliseconds step) {
    // What is read where it lies is checked when nothing is under way (Settle).
    if (chunks_.nothing_under_way() || !chunks_.attaches()) Request();
    const std::string stage = chunks_.StageOf(of_chunk_.begin()->first);
    const auto begin = Deadline::Clock::now();
    std::optional<ArrivedChunk> arrived =
        NamingTensor([&] { return chunks_.Poll(stage, step); }, [&] { return Oldest(); });
    note_.WaitedSince(begin);
    if (!arrived) return false;
    const auto awaited = of_chunk_.find(arrived->chunk);
    LAYERCAST_CHECK(awaited != of_chunk_.end());
    Ready& ready = *awaited->second;
    const std::vector<std::uint32_t>& of_tensor = chunks_of_.at(ready.tensor);
    const auto number = std::ranges::lower_bound(of_tensor, arrived->chunk) - of_tensor.begin();
    const auto place = static_cast<std::size_t>(number);
    const Hash* const hash = ready.hashes.empty() ? nullptr : &ready.hashes[place];
    fetch_.sink_.OnChunk(fetch_.schedule_.WholeOf(publisher_, arrived->chunk),
                         chunks_.Verified(*arrived, ready.digests[place], hash));
    chunks_.Done(arrived->chunk);
    note_.Used(chunks_.schedule().chunks()[arrived->chunk].num_bytes);
    if (bytes_left() == 0) note_.TellNow();
    of_chunk_.erase(awaited);
    --ready.left;
    Settle();
    return true;
  }

  // Tells the publisher that it may use the memory of what was taken again.
  void TellDone() {
    if (settled_ == told_) return;
    chunks_.peer().link().Send(wire::TensorDone{settled_});
    told_ = settled_;
    untold_bytes_ = 0;
  }

  // Keeps the session alive, stores what has come for later, as messages may be ahead of chunks, and says how far this
  // receiver is.
  void LookAtLink(const std::string& stage) {
    const std::size_t each = chunks_.peer().expects_signed() ? 2 : 1;
    chunks_.peer().link().TakeIn(each * chunks_.manifest().size() + 1, stage);  // for each tensor, and one for the end
    if (!ended_) note_.Tell();
  }

 private:
  // A tensor that the publisher has, and of which some chunks are awaited.
  struct Ready {
    std::uint32_t sequence;
    std::uint32_t tensor;
    std::uint64_t offer;
    std::vector<Digest> digests;  // of its chunks
    std::vector<Hash> hashes;     // of its chunks, if they are signed
    std::size_t left;             // how many are awaited
  };
  // How many bytes are taken before the publisher is told of them though more tensors are here, or may come.
  static constexpr std::uint64_t kTellEvery = std::uint64_t{1} << 20;

  [[noreturn]] void RefuseOutOfPlace(const wire::Message& message) const {
    chunks_.peer().Refuse("sent '" + std::string(wire::MessageName(message)) + "' out of place while " + Stage());
  }

  // What a message said is believed once it is signed, if it must be.
  void TakeSigned(const wire::SignedDigests& signed_digests) {
    if (!unsigned_) RefuseOutOfPlace(signed_digests);
    const wire::TensorsReady ready = *std::exchange(unsigned_, std::nullopt);
    chunks_.peer().CheckSigned(0, ready, signed_digests);
    TakeReady(ready, signed_digests.chunk_hashes);
  }

  // `hashes` has those of all chunks, one tensor after the other; empty: nothing is signed.
  void TakeReady(const wire::TensorsReady& message, std::span<const Hash> hashes) {
    for (const wire::ReadyTensor& tensor : message.tensors) {
      if (tensor.tensor >= chunks_.manifest().size()) RefuseOutOfPlace(message);
      const std::size_t own = std::min(tensor.chunk_digests.size(), hashes.size());
      Announce(tensor, hashes.first(own));
      hashes = hashes.subspan(own);
    }
    Settle();
  }

  void Announce(const wire::ReadyTensor& ready, std::span<const Hash> hashes) {
    const std::uint32_t number = fetch_.schedule_.numbers().FirstOf(publisher_) + ready.tensor;
    PublisherSession& publisher = chunks_.peer();
    ++tensors_;
    publisher.CheckTensorAmax(ready.tensor, ready.amax);
    fetch_.sink_.OnTensor(number, ready.amax, ready.digest);
    if (publisher.AskedAmaxOf(ready.tensor) || !ready.axis_amax.empty()) {
      publisher.CheckAmax(ready.tensor, ready.axis_amax);
      fetch_.sink_.OnAxisAmax(number, ready.axis_amax);
    }
    ready_.push_back({ready.sequence, ready.tensor, ready.offer_id, {}, {hashes.begin(), hashes.end()}, 0});
    const auto wanted = chunks_of_.find(ready.tensor);
    if (wanted != chunks_of_.end()) WantChunks(wanted->second, ready);
  }

  void WantChunks(const std::vector<std::uint32_t>& chunks, const wire::ReadyTensor& ready) {
    const std::string& name = chunks_.manifest().entry(ready.tensor).spec.name;
    if (ready.chunk_digests.size() != chunks.size()) {
      chunks_.peer().Refuse("sent " + std::to_string(ready.chunk_digests.size()) + " chunk digests of '" + name +
                            "', expected " + std::to_string(chunks.size()));
    }
    Ready& last = ready_.back();
    if (chunks_.peer().expects_signed() && last.hashes.size() != chunks.size()) {
      chunks_.peer().Refuse("has signed " + std::to_string(last.hashes.size()) + " chunks' hashes of '" + name +
                            "', expected " + std::to_string(chunks.size()));
    }
    last.digests = ready.chunk_digests;
    last.left = chunks.size();
    for (const std::uint32_t chunk : chunks) {
      if (!of_chunk_.emplace(chunk, &last).second) chunks_.peer().Refuse("sent '" + name + "' twice");
      chunks_.Want(ready.offer_id, chunk, ready.offset);
    }
  }

  void Request() {
    NamingTensor([&] { chunks_.Request(); }, [&] { return of_chunk_.at(chunks_.next_wanted())->tensor; });
  }

  // The tensor of which chunks have been awaited for longest.
  std::uint32_t Oldest() const {
    return std::ranges::find_if(ready_, [](const Ready& ready) { return ready.left != 0; })->tensor;
  }

  // Lets go of the tensors that were taken whole, once it is known that what was read of them was theirs.
  void Settle() {
    if (chunks_.attaches() && !chunks_.nothing_under_way()) return;
    std::optional<std::uint64_t> checked;
    for (; !ready_.empty() && ready_.front().left == 0; ready_.pop_front()) {
      const Ready& ready = ready_.front();
      if (checked != ready.offer && !ready.digests.empty()) chunks_.ExpectOffered(*(checked = ready.offer));
      untold_bytes_ += static_cast<std::uint64_t>(chunks_.manifest().entry(ready.tensor).spec.num_bytes());
      settled_ = ready.sequence;
    }
    if (ended() || untold_bytes_ >= kTellEvery) TellDone();
  }

  // Makes a call of the channel, whose errors then name the tensor: the channel knows only its offer. If a region is
  // missing there although it was in the manifest, the publisher does not hold what it promised.
  template <typename Call, typename TensorOf>
  std::invoke_result_t<Call> NamingTensor(const Call& call, const TensorOf& tensor_of) const {
    try {
      return call();
    } catch (const Error& error) {
      const bool short_tensor = error.code() == ErrorCode::kInvalidArgument;
      throw Error(short_tensor ? ErrorCode::kCorrupt : error.code(),
                  "'" + chunks_.manifest().entry(tensor_of()).spec.name + "': " + error.what());
    }
  }

  // Checks the counts alone. The pipeline names a chunk that never came, because it knows the tensor's layer.
  void CheckEnd(const wire::StreamEnd& end) {
    ended_ = true;
    Note(end.cost, chunks_.peer().share());
    if (end.tensors == tensors_) return Settle();
    chunks_.peer().Refuse("says it sent " + std::to_string(end.tensors) + " tensors, got " + std::to_string(tensors_));
  }

  StreamFetch& fetch_;
  ChunkFetch& chunks_;
  const std::uint32_t publisher_;
  const ChunksByTensor chunks_of_;
  ProgressNote note_{chunks_.peer()};
  std::optional<wire::TensorsReady> unsigned_;  // what announces tensors, and is not yet signed
  std::deque<Ready> ready_;                     // that are not settled, as they came
  std::map<std::uint32_t, Ready*> of_chunk_;    // by chunk that is awaited
  std::uint32_t tensors_ = 0;                   // how many came
  std::uint32_t settled_ = 0;                   // the last tensor that is, by its sequence
  std::uint32_t told_ = 0;                      // the last one that the publisher was told of
  std::uint64_t untold_bytes_ = 0;              // of those since
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
    if (!TakeWhatCame()) AwaitMore();
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
  constexpr std::chrono::milliseconds kNow{0};
  return open_.size() > 1 &&
         std::ranges::any_of(open_, [&](Part* part) { return part->awaits_chunks() && part->TakeChunk(kNow); });
}

// Waits for a chunk where any is awaited: the next tensors are then asked for in time.
void StreamFetch::AwaitMore() {
  const auto step = open_.size() == 1 ? ChunkFetch::kPollStep : kTurn;
  const auto awaits = std::ranges::find_if(open_, &Part::awaits_chunks);
  if (awaits != open_.end()) {
    (*awaits)->TakeChunk(step);
    return;
  }
  Part& part = *open_.front();
  std::optional<wire::Message> message = part.chunks().PollMessage(part.Stage(), kMoreMayCome);
  if (!message) {
    for (Part* each : open_) each->TellDone();
    message = part.chunks().PollMessage(part.Stage(), step);
  }
  if (message) part.Take(*message);
}

void StreamFetch::LookAtLinks(const std::string& stage) {
  for (const auto& part : parts_) part->LookAtLink(stage);
}

}  // namespace layercast
