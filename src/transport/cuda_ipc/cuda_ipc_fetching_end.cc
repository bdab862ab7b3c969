#include "src/transport/cuda_ipc/cuda_ipc_fetching_end.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/device/device_tick.h"
#include "src/net/local_socket.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::size_t kPinnedAtOnce = std::size_t{64} << 20;
constexpr std::size_t kMaxSegments = 4096;
constexpr std::chrono::seconds kNothingCame{10};

}  // namespace

CudaIpcFetchingEnd::CudaIpcFetchingEnd(CudaIpcParts parts, std::shared_ptr<Mappings> mappings,
                                       const std::string& address, Deadline deadline)
    : ControlledFetching("cuda_ipc: publisher at " + WithoutKey(address)),
      parts_(std::move(parts)),
      mappings_(std::move(mappings)),
      address_(WithoutKey(address)) {
  Run([&] {
    if (!address.starts_with(kAddressPrefix)) throw Error(ErrorCode::kUnavailable, "not an address of this channel");
    const std::string name = address_.substr(kAddressPrefix.size());
    const Token key = KeyOf(address);
    if (!Greet(name, key, true, deadline)) static_cast<void>(Greet(name, key, false, deadline));
    stream_ = parts_.device->MakeStream();
    liveness_.Heard();
  });
  mappings_->Begin(address_, control_->fd());
}

bool CudaIpcFetchingEnd::Greet(const std::string& name, const Token& key, bool takes_events, Deadline deadline) {
  control_.emplace(ConnectLocally(SOCK_STREAM, name, deadline));
  takes_events = takes_events && (parts_.driver->opens_its_own() || !IsWithinThisProcess(control_->fd()));
  control_->Send(Encode(Hello{kVersion, key, takes_events}));
  const Welcome welcome = Decode<Welcome>(control_->AwaitAnswer(deadline));
  if (!welcome.event) return true;
  if (!takes_events) throw Error(ErrorCode::kCorrupt, "WELCOME: an event that was not asked for");
  try {
    event_ = parts_.driver->OpenEvent(*welcome.event);
    return true;
  } catch (const Error& error) {
    log::info("cuda_ipc: the publisher tells when a version is copied in, its event cannot be opened: {}",
              error.what());
    return false;
  }
}

void CudaIpcFetchingEnd::Failed() {
  segments_.clear();
  mappings_->DropAll(address_);
}

void CudaIpcFetchingEnd::Prepare(Chunk& chunk, const ChunkRequest& request, const std::vector<std::byte>& /*message*/) {
  chunk.regions.assign(request.regions.begin(), request.regions.end());
  chunk.reached = !chunk.destination.empty() && parts_.device->Reaches(chunk.destination.data());
}

std::optional<ChunkCompletion> CudaIpcFetchingEnd::Poll(Deadline deadline) {
  Run([this] { TakeMessages(); });
  return ControlledFetching::Poll(deadline);
}

void CudaIpcFetchingEnd::End() noexcept {
  stream_.reset();  // waits for the copies, whose memory goes below
  granted_.clear();
  copying_.clear();
  requests_.Clear();
  segments_.clear();
  event_.reset();
  if (control_) mappings_->End();
  control_.reset();  // the publisher may use again what was granted
}

bool CudaIpcFetchingEnd::Progress() {
  bool moved = Land();
  // After Land, because a publisher that has given this receiver up uses its memory again, and what has been copied
  // since is not what was asked for. Then this throws, and what has landed is not handed out.
  moved = TakeMessages() || moved;
  moved = CopyGranted() || moved;
  if (device_works() && Deadline::Clock::now() - moved_ > kNothingCame) {
    throw Error(ErrorCode::kUnavailable, "the device has copied nothing for ten seconds");
  }
  return moved;
}

void CudaIpcFetchingEnd::TakeMessage(std::span<const std::byte> message) {
  const Kind kind = DecodeKind(message);
  if (kind == kSegment) return TakeSegment(Decode<Announced>(message));
  if (kind == kGranted) return TakeGranted(Decode<Granted>(message));
  if (kind == Kind::kPong) {
    Decode<Bare>(message);
    return;
  }
  if (kind == kGone) {
    const std::uint32_t number = Decode<Gone>(message).segment;
    segments_.erase(number);
    return mappings_->Drop({address_, number});
  }
  if (kind != Kind::kRefused) throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  ThrowRefusal(message);
}

void CudaIpcFetchingEnd::TakeSegment(const Announced& announced) {
  SegmentKey key{control_->TakeDescriptor(), announced.handle.value_or(IpcHandle{})};
  if (static_cast<bool>(key.descriptor) == announced.handle.has_value()) {
    throw Error(ErrorCode::kCorrupt, "SEGMENT: neither a descriptor nor a handle, or both");
  }
  if (segments_.contains(announced.number) || segments_.size() == kMaxSegments) {
    throw Error(ErrorCode::kCorrupt, "SEGMENT: a number twice, or too many");
  }
  lane_ = key.descriptor ? "VMM" : "legacy IPC";
  Mapping mapping = mappings_->Get({address_, announced.number}, address_,
                                   [&] { return parts_.driver->Map(std::move(key), announced.bytes); });
  segments_.emplace(announced.number, std::move(mapping));
}

void CudaIpcFetchingEnd::TakeGranted(const Granted& granted) {
  Chunk* const chunk = requests_.Find(granted.ticket);
  if (chunk == nullptr || chunk->granted || granted.places.size() != chunk->regions.size() ||
      (granted.waits && event_ == nullptr)) {
    throw Error(ErrorCode::kCorrupt, "GRANTED: what was not asked for, ticket " + std::to_string(granted.ticket));
  }
  chunk->granted = true;
  chunk->waits = granted.waits;
  for (std::size_t i = 0; i < granted.places.size(); ++i) {
    chunk->sources.push_back(Locate(granted.places[i], chunk->regions[i], chunk->mappings));
  }
  if (!device_works()) moved_ = Deadline::Clock::now();
  granted_.push_back(chunk);
}

RegionView CudaIpcFetchingEnd::Locate(const Place& place, const Region& region, std::vector<Mapping>& mappings) const {
  if (region.num_bytes() == 0) return {nullptr, region.row_bytes, region.rows, region.stride};
  const auto found = segments_.find(place.segment);
  if (found == segments_.end()) {
    throw Error(ErrorCode::kCorrupt, "GRANTED: a segment that is not there, " + std::to_string(place.segment));
  }
  const Mapping& mapping = found->second;
  try {
    CheckInside({0, place.offset, region.row_bytes, region.rows, region.stride}, mapping->size());
  } catch (const Error& error) {
    throw Error(ErrorCode::kCorrupt, std::string("GRANTED: outside its segment: ") + error.what());
  }
  if (std::ranges::find(mappings, mapping) == mappings.end()) mappings.push_back(mapping);
  return {mapping->base() + place.offset, region.row_bytes, region.rows, region.stride};
}

bool CudaIpcFetchingEnd::CopyGranted() {
  bool moved = false;
  while (!granted_.empty()) {
    Chunk& chunk = *granted_.front();
    const std::size_t pinned = chunk.reached ? 0 : chunk.destination.size();
    if (pinned_bytes_ != 0 && pinned > kPinnedAtOnce - std::min(kPinnedAtOnce, pinned_bytes_)) break;
    // Asked again at the next tick. A stream that waited for the event would wait for ever if the publisher died first.
    if (chunk.waits && !event_->Reached()) break;
    granted_.pop_front();
    if (pinned != 0) chunk.pinned = Buffer(parts_.device->pinned_memory(), pinned);
    if (copying_.empty()) moved_ = Deadline::Clock::now();
    copying_.push_back(&chunk);
    pinned_bytes_ += pinned;
    Copy(chunk);
    moved = true;
  }
  return moved;
}

void CudaIpcFetchingEnd::Copy(Chunk& chunk) {
  std::byte* to = chunk.pinned ? chunk.pinned.data() : chunk.destination.data();
  for (const RegionView& source : chunk.sources) {
    stream_->CopyRows(to, source);
    to += source.num_bytes();
  }
  chunk.copied = stream_->Mark();
}

bool CudaIpcFetchingEnd::Land() {
  bool moved = false;
  while (!copying_.empty() && stream_->Reached(copying_.front()->copied)) {
    Chunk& chunk = *copying_.front();
    copying_.pop_front();
    if (chunk.pinned) std::memcpy(chunk.destination.data(), chunk.pinned.data(), chunk.pinned.size());
    pinned_bytes_ -= chunk.pinned.size();
    control_->Send(Encode(Done{chunk.ticket}));
    requests_.Complete(chunk);
    moved_ = Deadline::Clock::now();
    moved = true;
  }
  return moved;
}

void CudaIpcFetchingEnd::Sleep(Deadline deadline) { SleepFor(device_works() ? kDeviceTick : deadline.Remaining()); }

}  // namespace layercast::cuda_ipc_channel
