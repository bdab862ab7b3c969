#include "src/transport/channel/channel_peer.h"

#include "layercast/error.h"

namespace layercast {

void ChannelPeer::TakeMessages() {
  control_.Flush();
  more_ = control_.ReceiveSome([this](std::span<const std::byte> message) {
    if (!refused_ && !cut_) Take(message);
  });
}

void ChannelPeer::Take(std::span<const std::byte> message) {
  if (!greeted_) {
    greeted_ = OnHello(message);
    return;
  }
  switch (const Kind kind = DecodeKind(message)) {
    case Kind::kRequest: return TakeRequest(Decode<Request>(message));
    case Kind::kPing: Decode<Bare>(message); return OnPing();
    default: OnMessage(kind, message);
  }
}

void ChannelPeer::TakeRequest(const Request& request) {
  try {
    OnRequest(request);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;
    Refuse({request.ticket, error.code(), error.what()});
  }
}

void ChannelPeer::OnMessage(Kind /*kind*/, std::span<const std::byte> /*message*/) {
  throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
}

void ChannelPeer::Refuse(const Refusal& refusal) {
  refused_ = true;
  DropRequests();
  control_.Send(Encode(refusal));
}

}  // namespace layercast
