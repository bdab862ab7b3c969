#include "src/transport/cuda_ipc/cuda_ipc_receiver.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/net/local_socket.h"
#include "src/transport/channel/offer_views.h"

namespace layercast::cuda_ipc_channel {
namespace {

constexpr std::chrono::seconds kToLetGo{5};  // of an offer that was removed

}  // namespace

Receiver::Receiver(UniqueFd connected, const ReceiverContext& context, std::uint64_t number)
    : ChannelPeer(std::move(connected), number), context_(context), ours_(IsOurUser(control_.fd())) {}

bool Receiver::OnHello(std::span<const std::byte> message) {
  if (!ours_) throw Error(ErrorCode::kCorrupt, "it is another user's");
  const Hello hello = Decode<Hello>(message);
  if (hello.version < kVersion || !Enters(context_.invitations, hello.key)) {
    throw Error(ErrorCode::kCorrupt, "HELLO: a key that was not handed out, or is too old or used up");
  }
  const IpcHandle* const event = context_.copy_in.event();
  takes_events_ = hello.takes_events && event != nullptr;
  control_.Send(Encode(Welcome{kVersion, takes_events_ ? std::optional(*event) : std::nullopt}));
  return true;
}

void Receiver::OnMessage(Kind kind, std::span<const std::byte> message) {
  if (kind != kDone) return ChannelPeer::OnMessage(kind, message);
  TakeDone(Decode<Done>(message).ticket);
}

void Receiver::OnRequest(const Request& request) {
  if (held_.size() == kMaxRequestsUnderWay || request.regions.size() > kMaxRegionsUnderWay - regions_ ||
      held_.contains(request.ticket)) {
    throw Error(ErrorCode::kCorrupt, "too many requests under way, or a ticket twice");
  }
  FailPoints* const failpoints = context_.failpoints;
  if (failpoints != nullptr) failpoints->Hit(FailPointOf(request.offer_id));
  Asked asked = Locate(request);
  held_.emplace(request.ticket, Held{asked.offered, request.regions.size(), {}});
  regions_ += request.regions.size();
  waiting_.push_back(std::move(asked));
}

Receiver::Asked Receiver::Locate(const Request& request) {
  Asked asked{request.ticket, context_.offers.Find(request.offer_id), {}, {}};
  const std::vector<RegionView> views = ViewsOf(asked.offered->tensors, request.regions);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const Block& block = asked.offered->blocks[request.regions[i].tensor];
    if (views[i].num_bytes() == 0) {
      asked.places.push_back({});
      continue;
    }
    const auto inside = static_cast<std::size_t>(views[i].base - block.data());
    asked.places.push_back({block.segment()->number, block.offset() + inside});
    if (std::ranges::find(asked.segments, block.segment()) == asked.segments.end()) {
      asked.segments.push_back(block.segment());
    }
  }
  return asked;
}

void Receiver::TakeDone(std::uint64_t ticket) {
  const auto found = held_.find(ticket);
  if (found == held_.end() || std::ranges::find(waiting_, ticket, &Asked::ticket) != waiting_.end()) {
    throw Error(ErrorCode::kCorrupt, "DONE: a ticket that was not granted");
  }
  regions_ -= found->second.regions;
  held_.erase(found);
}

bool Receiver::Progress() {
  bool moved = false;
  TellOfGoneSegments();
  while (!waiting_.empty()) {
    Asked& next = waiting_.front();
    if (next.offered->removed) {
      Refuse({next.ticket, ErrorCode::kNotFound, "the offer was removed"});
      return true;
    }
    const bool waits = !context_.copy_in.Reached(next.offered->copied);
    if (waits && !takes_events_) break;
    const Asked asked = std::move(next);
    waiting_.pop_front();
    try {
      Grant(asked, waits);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      Refuse({asked.ticket, error.code(), error.what()});
    }
    moved = true;
  }
  return moved;
}

void Receiver::Grant(const Asked& asked, bool waits) {
  for (const std::shared_ptr<Segment>& segment : asked.segments) Announce(segment);
  control_.Send(Encode(Granted{asked.ticket, waits, asked.places}));
}

void Receiver::Announce(const std::shared_ptr<Segment>& segment) {
  if (announced_.contains(segment->number)) return;
  SegmentKey key = segment->memory->Export();
  Announced announced{segment->number, segment->memory->size(), {}};
  if (!key.descriptor) {
    if (IsWithinThisProcess(control_.fd()) && !context_.opens_its_own) {
      throw Error(ErrorCode::kUnsupported,
                  "there is no VMM here, and CUDA opens legacy handles only in another process than their own");
    }
    announced.handle = key.handle;
  }
  control_.Send(Encode(announced), std::move(key.descriptor));
  announced_.emplace(segment->number, segment);
}

void Receiver::TellOfGoneSegments() {
  std::erase_if(announced_, [&](const auto& entry) {
    if (!entry.second.expired()) return false;
    control_.Send(Encode(Gone{entry.first}));
    return true;
  });
}

bool Receiver::TooLate() {
  if (!ours_ || ChannelPeer::TooLate()) return true;
  return std::ranges::any_of(held_, [](auto& entry) {
    Held& held = entry.second;
    if (!held.offered->removed) return false;
    if (!held.let_go) held.let_go = Deadline::After(kToLetGo);
    return held.let_go->Passed();
  });
}

}  // namespace layercast::cuda_ipc_channel
