#include "src/transport/nccl/fleet/nccl_receiver.h"

#include <utility>

#include "src/base/log.h"
#include "src/transport/nccl/fleet/fleets.h"

namespace layercast::nccl_channel {

Receiver::~Receiver() { context_.fleets.Leave(*this); }

bool Receiver::OnHello(std::span<const std::byte> message) {
  const auto hello = Decode<Hello>(message);
  if (!Enters(context_.invitations, hello.key)) {
    throw Error(ErrorCode::kCorrupt, "HELLO: a key that was not handed out, or is too old or used up");
  }
  try {
    ExpectPartner(hello);
  } catch (const Error& error) {
    Refuse({0, error.code(), error.what()});
    return true;
  }
  device_ = hello.device;
  control_.Send(Encode(Welcome{}));
  context_.fleets.Join(*this);
  return true;
}

void Receiver::ExpectPartner(const Hello& hello) const {
  ExpectVersion(hello.version, "receiver");
  const int mine = context_.library.version();
  if (hello.nccl != static_cast<std::uint32_t>(mine)) {
    throw Error(ErrorCode::kUnsupported, "NCCL works among equal versions alone: the publisher's is " +
                                             VersionText(mine) + ", the receiver's " +
                                             VersionText(static_cast<int>(hello.nccl)));
  }
  const DeviceUuid device = context_.device.uuid();
  if (hello.device == device) {
    throw Error(ErrorCode::kUnsupported,
                "NCCL takes one end for a GPU, and publisher and receiver are both on " + DeviceText(device));
  }
}

void Receiver::OnMessage(Kind kind, std::span<const std::byte> message) {
  const auto of_nccl = static_cast<NcclKind>(kind);
  if (of_nccl == NcclKind::kReady) return TakeReady(Decode<Ready>(message));
  ExpectCalled();
  switch (of_nccl) {
    case NcclKind::kGo: Decode<Bare>(message); return TakeGroupsGo();
    case NcclKind::kDone: Decode<Bare>(message); return TakeDone();
    case NcclKind::kStands: stood_ = Decode<OfEpoch>(message).epoch <= epoch_ || stood_; return;
    case NcclKind::kFailed: failed_ = Decode<OfEpoch>(message).epoch == epoch_ || failed_; return;
    default: ChannelPeer::OnMessage(kind, message);
  }
}

void Receiver::ExpectCalled() const {
  if (state_ == State::kWaits) throw Error(ErrorCode::kCorrupt, "a message of an epoch, before the first");
}

void Receiver::Call(std::uint64_t epoch) {
  answered_ = false;
  control_.Send(Encode(OfEpoch{NcclKind::kCall, epoch}));
  if (epoch == epoch_) return;  // this call only asks whether it is still there
  epoch_ = epoch;
  state_ = State::kCalled;
  failed_ = false;
  replies_.Clear();
  announced_ = gos_ = 0;
}

void Receiver::TakeReady(const Ready& ready) {
  if (ready.epoch == 0 || ready.epoch > epoch_) {
    throw Error(ErrorCode::kCorrupt, "READY: an epoch that it was not called to");
  }
  if (ready.epoch < epoch_) return;  // it has been called once more since
  answered_ = true;
  if (std::exchange(state_, State::kReady) == State::kReady) return;
  awaited_ = ready.requests;
  unfinished_ = 0;
}

// A request that comes between a call and its answer shows only that the receiver waits for something: it is repeated
// after the answer.
void Receiver::OnRequest(const Request& request) {
  ExpectCalled();
  if (!wants()) wants_since_ = Deadline::Clock::now();
  ++unfinished_;
  if (state_ == State::kCalled) return;
  if (awaited_ > 0) --awaited_;
  replies_.Push(request, context_.book, context_.failpoints.load());
}

void Receiver::TakeGroupsGo() {
  if (state_ == State::kCalled) return;
  if (announced_ == 0) throw Error(ErrorCode::kCorrupt, "GO: more than was announced");
  --announced_;
  ++gos_;
}

void Receiver::TakeDone() {
  if (unfinished_ == 0) throw Error(ErrorCode::kCorrupt, "DONE: more than it asked for");
  --unfinished_;
  ++done_;
  if (waits_for_bytes()) return;
  rested_at_ = done_;
  standing_.Rested();
}

void Receiver::Announce(const PieceGroup& group) {
  control_.Send(Encode(group));
  if (group.pieces.front().bytes > 0) ++announced_;
}

bool Receiver::TakeGo() {
  if (gos_ == 0) return false;
  --gos_;
  return true;
}

void Receiver::Cut(const Error& error) {
  log::warn("nccl: receiver {} loses its connection: {}", number(), error.what());
  EndSoon();
}

}  // namespace layercast::nccl_channel
