#include "src/session/offer/stream_walk.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/log.h"
#include "src/base/memory/buffer_for.h"
#include "src/base/threads/thread_name.h"
#include "src/session/link/chunk_digests.h"
#include "src/session/link/trainer_cost.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "src/tensor/tensor_part.h"

namespace layercast {
namespace {

// How many slots a window has at most: each costs a message in a socket's queue.
constexpr std::size_t kMostSlots = 256;

}  // namespace

StreamWalk::StreamWalk(std::shared_ptr<OfferedVersion> version, std::vector<StreamReader> readers,
                       const ServeContext& context, StreamWindow& window)
    : version_(std::move(version)),
      hold_(std::in_place, version_, VersionUse::kWalk),
      readers_(std::move(readers)),
      context_(context),
      window_(window),
      share_(std::in_place, window),
      first_offer_id_(context.take_offer_ids(version_->manifest().size() + 1)) {
  for (const StreamReader& reader : readers_) {
    present_.insert(reader.key);
    auto& chunks_of = chunks_of_.emplace_back();
    for (std::uint32_t i = 0; i < reader.schedule->chunks().size(); ++i) {
      chunks_of.emplace(reader.schedule->RegionsOf(reader.schedule->chunks()[i]).front().tensor, i);
    }
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void StreamWalk::Done(const SessionKey& reader, std::uint32_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto slot = slots_.find(sequence);
  if (slot != slots_.end()) slot->second.awaited.erase(reader);
  changed_.notify_all();
}

void StreamWalk::Leave(const SessionKey& reader) {
  const std::lock_guard lock(mutex_);
  present_.erase(reader);
  for (auto& [sequence, slot] : slots_) slot.awaited.erase(reader);
  changed_.notify_all();
}

bool StreamWalk::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void StreamWalk::Run(const std::stop_token& stop) {
  NameThisThread("lc-walk");
  try {
    WalkAll(stop);
  } catch (const Error& error) {
    Fail(error);
  } catch (const std::exception& thrown) {
    const Error error = AsError(thrown);
    Fail({error.code(), std::string("the source failed: ") + error.what()});
  } catch (...) {
    Fail({ErrorCode::kInternal, "the source failed: it threw what is no std::exception"});
  }
  End();
}

void StreamWalk::End() {
  hold_.reset();
  std::map<std::uint32_t, Slot> left;  // destroyed after the lock is gone, and before the share
  {
    const std::lock_guard lock(mutex_);
    if (present_.empty()) left.swap(slots_);
  }
  left.clear();
  share_.reset();
  const std::lock_guard lock(mutex_);
  ended_ = true;
}

// The source is the user's code, and whatever it throws ends this walk and nothing else.
void StreamWalk::Fail(const Error& error) {
  log::error("stream of {}: {}", version_->manifest().version().ToString(), error.what());
  for (const StreamReader& reader : readers_) {
    context_.outbox.Put(reader.key, wire::Refused{error.code(), error.what()});
  }
}

std::vector<std::string> StreamWalk::Order() const {
  std::vector<std::string> names;
  if (!version_->layer_order()) return names;
  std::unordered_set<std::string_view> listed;  // of several parts of a tensor, the name once
  const auto list = [&](std::uint32_t tensor) {
    const std::string& name = version_->manifest().entry(tensor).spec.name;
    if (listed.insert(name).second) names.push_back(name);
  };
  for (const Region& region : readers_.front().schedule->regions()) list(region.tensor);
  const auto tensors = static_cast<std::uint32_t>(version_->manifest().size());
  for (std::uint32_t tensor = 0; tensor < tensors; ++tensor) list(tensor);  // what that schedule does not have
  return names;
}

void StreamWalk::WalkAll(const std::stop_token& stop) {
  const Manifest& manifest = version_->manifest();
  const std::unique_ptr<WeightsIterator> weights = version_->Walk(Order());
  if (weights == nullptr) throw Error(ErrorCode::kInvalidArgument, "the source's walk gave no iterator");
  std::vector<bool> yielded(manifest.size());  // each tensor at most once, because there is an offer's number for each
  std::uint32_t sequence = 0;
  WorkCost cost;
  WorkClock clock;
  const auto next = [&] {
    cost += clock.Lap();
    std::optional<NamedTensor> named = weights->Next();
    clock.Lap();  // the source's own time is not counted
    return named;
  };
  while (std::optional<NamedTensor> named = next()) {
    const std::uint32_t tensor = Declared(*named);
    if (yielded[tensor]) {
      throw Error(ErrorCode::kInvalidArgument, "the source yielded " + DescribePart(*named) + " twice");
    }
    yielded[tensor] = true;
    if (!MakeRoom(static_cast<std::uint64_t>(manifest.entry(tensor).spec.num_bytes()), stop)) return;
    Send(++sequence, tensor, *named);
  }
  for (const StreamReader& reader : readers_) context_.outbox.Put(reader.key, wire::StreamEnd{sequence, ToWire(cost)});
  while (!stop.stop_requested() && !slots_.empty()) MakeRoom(window_.bytes, stop);
}

// Its number in the manifest. Throws kInvalidArgument unless it is as it was declared, and has its bytes.
std::uint32_t StreamWalk::Declared(const NamedTensor& named) const {
  const std::int64_t tensor = version_->manifest().Find(named.name, named.part);
  if (tensor < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the source yielded " + DescribePart(named) + ", which it did not declare");
  }
  const Manifest::Entry declared = version_->manifest().entry(static_cast<std::uint32_t>(tensor));
  const TensorSpec& spec = declared.spec;
  CheckYielded(spec, declared.part, named.part);
  if (named.tensor.dtype != spec.dtype || named.tensor.shape != spec.shape) {
    throw Error(ErrorCode::kInvalidArgument, "'" + spec.name + "': the source declared " + Describe(spec) +
                                                 ", and yielded " + Describe(named.tensor.dtype, named.tensor.shape));
  }
  CheckHasBytes(spec.name, named.tensor);
  return static_cast<std::uint32_t>(tensor);
}

// Waits until the window has room for `bytes`; one tensor always fits an empty window. Returns false if no reader is
// left.
bool StreamWalk::MakeRoom(std::uint64_t bytes, const std::stop_token& stop) {
  while (true) {
    RetireDoneSlots();
    std::unique_lock lock(mutex_);
    if (present_.empty() || stop.stop_requested()) return false;
    const bool fits = window_used_ + bytes <= window_.share() && slots_.size() < kMostSlots;
    if (slots_.empty() || fits) return true;
    changed_.wait(lock, stop, [this] {
      return present_.empty() ||
             std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot.second.awaited.empty(); });
    });
  }
}

void StreamWalk::RetireDoneSlots() {
  std::vector<Slot> done;  // destroyed after the lock is gone: taking an offer back may wait for a receiver
  const std::lock_guard lock(mutex_);
  for (auto slot = slots_.begin(); slot != slots_.end();) {
    if (!slot->second.awaited.empty()) {
      ++slot;
      continue;
    }
    window_used_ -= slot->second.memory.size();
    done.push_back(std::move(slot->second));
    slot = slots_.erase(slot);
  }
}

void StreamWalk::Send(std::uint32_t sequence, std::uint32_t tensor, const NamedTensor& named) {
  const auto bytes = static_cast<std::size_t>(named.tensor.num_bytes());
  Slot slot;
  slot.memory = BufferFor("'" + named.name + "' of the stream", context_.arena, std::max<std::size_t>(bytes, 1));
  const TensorView readable = CopyIn(named, slot.memory);
  const TensorSummary summary = SummaryOf(named.name, readable, context_.pool);
  Offer offer{.id = first_offer_id_ + sequence, .tensors = {{slot.memory.data(), bytes}}};

  std::vector<std::vector<Digest>> digests;
  for (std::size_t reader = 0; reader < readers_.size(); ++reader) {
    digests.push_back(DigestChunks(reader, tensor, slot));
  }
  if (context_.failpoints.Hit("send.tensor")) offer.tensors.front().bytes = bytes / 2;
  slot.offer.emplace(offer, context_.ends);
  {
    const std::lock_guard lock(mutex_);
    slot.awaited = present_;
    window_used_ += slot.memory.size();
    slots_.emplace(sequence, std::move(slot));
  }
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    const StreamReader& reader = readers_[i];
    wire::TensorReady ready{.sequence = sequence,
                            .tensor = tensor,
                            .offer_id = offer.id,
                            .amax = summary.amax,
                            .digest = summary.digest,
                            .axis_amax = {},
                            .chunk_digests = std::move(digests[i])};
    if (const auto asked = reader.amax_requests.find(tensor); asked != reader.amax_requests.end()) {
      const AmaxRequest& request = asked->second;
      ready.axis_amax = AmaxOver(AsRead(version_->manifest().entry(tensor).spec, request), readable.data, request.kept,
                                 context_.pool);
    }
    context_.outbox.Put(reader.key, std::move(ready));
  }
}

// Copies a tensor into its slot. Returns what the host can read of it: the tensor where it lies, or, if that is on a
// device, the copy.
TensorView StreamWalk::CopyIn(const NamedTensor& named, const Buffer& slot) const {
  TensorView tensor = named.tensor;
  const auto bytes = static_cast<std::size_t>(tensor.num_bytes());
  if (tensor.device.kind != Device::Kind::kHost && context_.device != nullptr) {
    context_.device->ToHost(tensor.device, tensor.data, bytes, slot.data());
    tensor.data = slot.data();
    tensor.device = {};
    return tensor;
  }
  CheckReadable(named.name, tensor);
  if (bytes != 0) std::memcpy(slot.data(), tensor.data, bytes);
  return tensor;
}

std::vector<Digest> StreamWalk::DigestChunks(std::size_t reader, std::uint32_t tensor, Slot& slot) {
  const OfferedTensor whole{slot.memory.data(), slot.memory.size()};
  const Schedule& schedule = *readers_[reader].schedule;
  std::vector<Digest> digests;
  const auto [first, last] = chunks_of_[reader].equal_range(tensor);
  for (auto chunk = first; chunk != last; ++chunk) {
    const auto wanted = schedule.RegionsOf(schedule.chunks()[chunk->second]);
    std::vector<Region> regions(wanted.begin(), wanted.end());
    for (Region& region : regions) region.tensor = 0;
    digests.push_back(ChunkDigest(regions, {&whole, 1}));
    if (context_.failpoints.Hit("send.chunk")) slot.memory.data()[regions.front().offset] ^= std::byte{1};
  }
  return digests;
}

}  // namespace layercast
