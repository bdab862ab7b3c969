#include "src/transport/zmq/zmq_fetching_end.h"

#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "layercast/error.h"
#include "src/net/curve/client_keys.h"
#include "src/net/message_order.h"
#include "src/net/zmq/poll_sockets.h"
#include "src/net/zmq/zmq_context.h"
#include "src/transport/zmq/peer.h"
#include "src/transport/zmq/sockets.h"

namespace layercast::zmq_channel {
namespace {

// To connect, if a publisher ends a handshake; but one that does not answer at all is not waited for so often.
constexpr int kMoreTries = 8;
constexpr std::chrono::seconds kMoreTriesWithin{5};

std::span<const std::byte> BytesOf(const zmq::message_t& message) {
  return {static_cast<const std::byte*>(message.data()), message.size()};
}

}  // namespace

ZmqFetchingEnd::ZmqFetchingEnd(const std::string& address, const Keys& keys, Deadline deadline)
    : FetchingBase("zmq: publisher at " + address),
      context_(MakeContext(peer())),
      socket_(MakeDealer(context_)),
      monitor_(context_, socket_, kMostMessageBytes, keys),
      more_tries_(kMoreTries),
      more_tries_until_(Deadline::After(kMoreTriesWithin)) {
  ConnectWithKeys(socket_, keys);
  Open([&] { Greet(address, deadline); });
}

void ZmqFetchingEnd::Connect(const std::string& address) {
  try {
    if (!address.starts_with("tcp://")) throw Error(ErrorCode::kUnavailable, "not an address of this channel");
    socket_.set(zmq::sockopt::ipv6, address.starts_with("tcp://["));
    socket_.connect(address);
  } catch (const zmq::error_t& error) {
    throw Error(ErrorCode::kUnavailable, std::string("cannot connect: ") + error.what());
  }
}

// A publisher where many begin at one moment ends some of their handshakes (HandshakeBounds).
bool ZmqFetchingEnd::ConnectsAgain(const std::string& address) {
  if (more_tries_ == 0 || more_tries_until_.Passed() || !monitor_.WasCutShort()) return false;
  --more_tries_;
  try {
    socket_.disconnect(address);  // ZeroMQ connects only once to an endpoint
  } catch (const zmq::error_t&) {
  }
  Connect(address);
  return true;
}

void ZmqFetchingEnd::Greet(const std::string& address, Deadline deadline) {
  Connect(address);
  for (bool sent = false; !welcomed_;) {
    zmq::pollitem_t items[] = {{socket_.handle(), 0, static_cast<short>(sent ? ZMQ_POLLIN : ZMQ_POLLOUT), 0},
                               {monitor_.events().handle(), 0, ZMQ_POLLIN, 0}};
    PollSockets(items, deadline.AtMost(MessageMeter::kLook).Remaining());
    if (items[0].revents != 0 && !sent) Send(Encode(Hello{}));
    if (items[0].revents != 0 && sent) Receive();
    sent = sent || items[0].revents != 0;
    if (welcomed_) return;
    if (ConnectsAgain(address)) sent = false;
    ExpectThere();
    ExpectAnEnd();
    if (deadline.Passed()) throw Error(ErrorCode::kDeadlineExceeded, "it did not answer our HELLO in time");
  }
}

// A piece of what is under way would come to a later session, which has not asked for it.
bool ZmqFetchingEnd::Rest() noexcept {
  return socket_.handle() != nullptr && requests_.empty() && !requests_.has_done() && !announced_;
}

bool ZmqFetchingEnd::Resume() noexcept {
  try {
    Run([&] { ExpectThere(); });
  } catch (const std::exception&) {
    return false;
  }
  liveness_.Heard();
  return true;
}

bool ZmqFetchingEnd::Progress() {
  if (Receive()) return true;
  if (requests_.empty()) ExpectThere();
  return false;
}

void ZmqFetchingEnd::End() noexcept {
  requests_.Clear();
  socket_.close();
}

void ZmqFetchingEnd::Send(const std::vector<std::byte>& message) {
  MessageLeaves();
  if (!socket_.send(zmq::buffer(message), zmq::send_flags::dontwait)) {
    throw Error(ErrorCode::kUnavailable, "it takes no messages");
  }
}

bool ZmqFetchingEnd::Receive() {
  zmq::message_t message;
  while (!requests_.has_done() && socket_.recv(message, zmq::recv_flags::dontwait)) {
    MessageHasCome();
    liveness_.Heard();
    monitor_.EndMessage(message.size());
    if (message.more()) throw Error(ErrorCode::kCorrupt, "a message of several frames");
    TakeMessage(BytesOf(message));
  }
  return requests_.has_done();
}

void ZmqFetchingEnd::TakeMessage(std::span<const std::byte> message) {
  if (const auto header = std::exchange(announced_, std::nullopt)) return TakePiece(*header, message);
  switch (DecodeKind(message)) {
    case Kind::kPiece: announced_ = Decode<PieceHeader>(message); return;
    case Kind::kPong: Decode<Bare>(message); return;
    case Kind::kWelcome:
      if (Decode<Welcome>(message).version < kVersion)
        throw Error(ErrorCode::kUnsupported, "it speaks no version of ours");
      welcomed_ = true;
      return;
    case Kind::kRefused: ThrowRefusal(message);
    default: throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  }
}

void ZmqFetchingEnd::TakePiece(const PieceHeader& header, std::span<const std::byte> bytes) {
  Chunk* const chunk = requests_.Find(header.ticket);
  const bool expected = chunk != nullptr && header.offset == chunk->arrived && header.bytes == bytes.size() &&
                        bytes.size() <= chunk->destination.size() - chunk->arrived;
  if (!expected) {
    throw Error(ErrorCode::kCorrupt, "a piece that was not asked for: ticket " + std::to_string(header.ticket) +
                                         ", offset " + std::to_string(header.offset) + ", " +
                                         std::to_string(bytes.size()) + " bytes");
  }
  if (!bytes.empty()) std::memcpy(chunk->destination.data() + chunk->arrived, bytes.data(), bytes.size());
  chunk->arrived += bytes.size();
  if (chunk->arrived == chunk->destination.size()) requests_.Complete(*chunk);
}

void ZmqFetchingEnd::Wait(Deadline deadline) {
  ExpectThere();
  ExpectAnEnd();
  if (monitor_.Moved()) liveness_.Heard();
  FetchingBase::Wait(deadline);  // Receive has drained the socket
}

void ZmqFetchingEnd::Sleep(Deadline deadline) {
  zmq::pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {monitor_.events().handle(), 0, ZMQ_POLLIN, 0}};
  PollSockets(items, deadline.AtMost(MessageMeter::kLook).Remaining());
}

void ZmqFetchingEnd::ExpectAnEnd() {
  if (!monitor_.IsEndless()) return;
  throw Error(ErrorCode::kCorrupt, MessageMeter::Complaint(kMostMessageBytes));
}

void ZmqFetchingEnd::ExpectThere() {
  const std::string& ended = monitor_.Ended();
  if (!ended.empty()) throw LostConnection(ended, kPiecesUnderWay * kMostMessageBytes);
}

}  // namespace layercast::zmq_channel
