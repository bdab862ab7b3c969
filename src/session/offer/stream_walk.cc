#include "src/session/offer/stream_walk.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"
#include "src/session/chunks/chunk_digests.h"
#include "src/session/link/trainer_cost.h"
#include "src/session/signing/chunk_hashes.h"
#include "src/tensor/kernels/stream_copy.h"
#include "src/tensor/manifest/manifest_entry.h"
#include "src/tensor/tensor_part.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {
namespace {

// What a chunk of one tensor shows of where that lies.
std::vector<RegionView> ViewsIn(std::span<const std::byte> place, std::span<const Region> wanted) {
  const OfferedTensor whole{place.data(), place.size()};
  std::vector<Region> regions(wanted.begin(), wanted.end());
  for (Region& region : regions) region.tensor = 0;
  return ViewsOf({&whole, 1}, regions);
}

}  // namespace

StreamWalk::StreamWalk(std::shared_ptr<OfferedVersion> version, std::vector<StreamReader> readers,
                       const ServeContext& context, StreamWindow& window)
    : version_(std::move(version)),
      hold_(std::in_place, version_, VersionUse::kWalk),
      readers_(std::move(readers)),
      context_(context),
      window_(window),
      share_(std::in_place, window),
      blocks_(context, context.take_offer_ids(version_->manifest().size())) {
  for (const StreamReader& reader : readers_) {
    taken_.emplace(reader.key, 0);
    auto& chunks_of = chunks_of_.emplace_back();
    for (std::uint32_t i = 0; i < reader.schedule->chunks().size(); ++i) {
      chunks_of.emplace(reader.schedule->RegionsOf(reader.schedule->chunks()[i]).front().tensor, i);
    }
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void StreamWalk::Done(const SessionKey& reader, std::uint32_t sequence) {
  const std::lock_guard lock(mutex_);
  const auto taken = taken_.find(reader);
  if (taken != taken_.end()) taken->second = std::max(taken->second, sequence);
  changed_.notify_all();
}

void StreamWalk::Leave(const SessionKey& reader) {
  const std::lock_guard lock(mutex_);
  left_ = taken_.erase(reader) != 0 || left_;
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
  const bool awaited = [this] {
    const std::lock_guard lock(mutex_);
    return !taken_.empty();
  }();
  if (!awaited) blocks_.Clear();  // not under the lock: taking an offer back may wait for a receiver
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
    const auto bytes = static_cast<std::size_t>(manifest.entry(tensor).spec.num_bytes());
    if (!AwaitReaders(stop, [&] { return blocks_.HasRoom(bytes, window_.share()); })) return;
    Send(++sequence, tensor, *named);
  }
  for (const StreamReader& reader : readers_) context_.outbox.Put(reader.key, wire::StreamEnd{sequence, ToWire(cost)});
  AwaitReaders(stop, [this] { return blocks_.waiting() == 0; });
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

// How many tensors all readers that are there have taken; under mutex_.
std::uint32_t StreamWalk::TakenByAll() const {
  const auto least = std::ranges::min_element(taken_, {}, [](const auto& reader) { return reader.second; });
  return least == taken_.end() ? 0 : least->second;
}

template <class Enough>
bool StreamWalk::AwaitReaders(const std::stop_token& stop, const Enough& enough) {
  while (true) {
    std::unique_lock lock(mutex_);
    if (taken_.empty() || stop.stop_requested()) return false;
    const bool left = std::exchange(left_, false);
    const std::uint32_t taken = TakenByAll();
    lock.unlock();  // taking an offer back may wait for a receiver
    if (left) blocks_.Seal();
    blocks_.Retire(taken);
    if (enough()) return true;
    lock.lock();
    changed_.wait(lock, stop, [&] { return taken_.empty() || left_ || TakenByAll() != taken; });
  }
}

void StreamWalk::Send(std::uint32_t sequence, std::uint32_t tensor, const NamedTensor& named) {
  const auto bytes = static_cast<std::size_t>(named.tensor.num_bytes());
  const bool cut = context_.failpoints.Hit("send.tensor");  // to half of it, for which it has to lie alone
  StreamPlace place = blocks_.Place(named.name, bytes, cut ? 0 : window_.share());
  const TensorView readable = CopyIn(named, place.memory);
  const TensorSummary summary = SummaryOf(named.name, readable, context_.pool);
  std::vector<std::vector<Digest>> digests;
  std::vector<std::vector<Hash>> hashes;
  for (std::size_t reader = 0; reader < readers_.size(); ++reader) {
    hashes.push_back(HashChunks(reader, tensor, place.memory));
    digests.push_back(DigestChunks(reader, tensor, place.memory));
  }
  blocks_.Offer(place, cut ? bytes / 2 : bytes);
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    const StreamReader& reader = readers_[i];
    wire::ReadyTensor ready{.sequence = sequence,
                            .tensor = tensor,
                            .offer_id = place.offer_id,
                            .offset = place.offset,
                            .amax = summary.amax,
                            .digest = summary.digest,
                            .axis_amax = {},
                            .chunk_digests = std::move(digests[i])};
    if (const auto asked = reader.amax_requests.find(tensor); asked != reader.amax_requests.end()) {
      const AmaxRequest& request = asked->second;
      ready.axis_amax = AmaxOver(AsRead(version_->manifest().entry(tensor).spec, request), readable.data, request.kept,
                                 context_.pool);
    }
    Announce(reader, std::move(ready), std::move(hashes[i]));
  }
}

// Copies a tensor to its place. Returns what the host can read of it: the tensor where it lies, or, if that is on a
// device, the copy.
TensorView StreamWalk::CopyIn(const NamedTensor& named, std::span<std::byte> place) const {
  TensorView tensor = named.tensor;
  const auto bytes = static_cast<std::size_t>(tensor.num_bytes());
  if (tensor.device.kind != Device::Kind::kHost && context_.device != nullptr) {
    context_.device->ToHost(tensor.device, tensor.data, bytes, place.data());
    tensor.data = place.data();
    tensor.device = {};
    return tensor;
  }
  CheckReadable(named.name, tensor);
  StreamCopy(tensor.data, bytes, place.data(), context_.pool);
  return tensor;
}

std::vector<Digest> StreamWalk::DigestChunks(std::size_t reader, std::uint32_t tensor,
                                             std::span<std::byte> place) const {
  const Schedule& schedule = *readers_[reader].schedule;
  std::vector<Digest> digests;
  const auto [first, last] = chunks_of_[reader].equal_range(tensor);
  for (auto chunk = first; chunk != last; ++chunk) {
    const auto wanted = schedule.RegionsOf(schedule.chunks()[chunk->second]);
    digests.push_back(DigestOfViews(ViewsIn(place, wanted), context_.pool));
    if (context_.failpoints.Hit("send.chunk")) place[wanted.front().offset] ^= std::byte{1};
  }
  return digests;
}

std::vector<Hash> StreamWalk::HashChunks(std::size_t reader, std::uint32_t tensor,
                                         std::span<const std::byte> place) const {
  std::vector<Hash> hashes;
  if (!readers_[reader].signed_text) return hashes;
  const Schedule& schedule = *readers_[reader].schedule;
  const auto [first, last] = chunks_of_[reader].equal_range(tensor);
  for (auto chunk = first; chunk != last; ++chunk) {
    hashes.push_back(HashOfViews(ViewsIn(place, schedule.RegionsOf(schedule.chunks()[chunk->second])), &context_.pool));
  }
  return hashes;
}

void StreamWalk::Announce(const StreamReader& reader, wire::ReadyTensor ready, std::vector<Hash> hashes) {
  if (!reader.signed_text) return context_.outbox.Put(reader.key, std::move(ready));
  const wire::Message message = wire::TensorsReady{{std::move(ready)}};
  context_.outbox.Put(reader.key, message);
  context_.outbox.Put(reader.key,
                      wire::Message(reader.signed_text->Sign(*context_.signing, 0, std::move(hashes), message)));
}

}  // namespace layercast
