#include "src/transport/zmq/zmq_offering_end.h"

#include <chrono>
#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/net/message_order.h"
#include "src/net/zmq/poll_sockets.h"
#include "src/transport/zmq/sockets.h"

namespace layercast::zmq_channel {
namespace {

constexpr std::size_t kMaxPeers = 256;  // that wait for bytes at one time
constexpr int kMessagesAtOnce = 64;     // taken between two rounds of sending
constexpr const char* kTooOld = "this publisher speaks no version that old";

}  // namespace

void Service::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    FeedAll();
    zmq::pollitem_t items[] = {
        {socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_.fd(), ZMQ_POLLIN, 0}, check_.item()};
    PollSockets(items, limits_.look());
    wake_.Clear();
    check_.Work(limits_);
    ReceiveAll();
  }
}

void Service::ReceiveAll() {
  bool all_taken = false;
  for (int count = 0; !all_taken && count < kMessagesAtOnce; ++count) all_taken = !ReceiveOne();
  const std::string why = limits_.Enforce(all_taken);
  if (!why.empty()) log::warn("zmq: a receiver loses its connection: {}", why);
}

bool Service::ReceiveOne() {
  zmq::message_t routing_id;
  zmq::message_t message;
  if (!socket_.recv(routing_id, zmq::recv_flags::dontwait)) return false;
  // The frames of one message arrive together. A receiver of this channel sends exactly one, after the routing id.
  bool one_frame = routing_id.more() && socket_.recv(message, zmq::recv_flags::dontwait).has_value();
  for (zmq::message_t extra; socket_.get(zmq::sockopt::rcvmore);) {
    one_frame = false;
    if (!socket_.recv(extra, zmq::recv_flags::dontwait)) break;
  }
  MessageHasCome();
  limits_.Heard(message, message.size(), routing_id.to_string_view());
  const PeerConnection connection = limits_.Blamed(message, routing_id.to_string_view());
  try {
    if (!one_frame) throw Error(ErrorCode::kCorrupt, "a message of several frames");
    check_.Expect(message, "chunks");
    Handle(routing_id.to_string(), connection, {static_cast<const std::byte*>(message.data()), message.size()});
  } catch (const Error& error) {
    log::warn("zmq: a receiver loses its connection: {}", error.what());
    work_.erase(routing_id.to_string());
    connection.Cut();
  }
  return true;
}

void Service::Handle(const std::string& routing_id, const PeerConnection& connection,
                     std::span<const std::byte> message) {
  Sent sent = Sent::kTaken;
  switch (DecodeKind(message)) {
    case Kind::kHello:
      sent = Decode<Hello>(message).version < kVersion
                 ? Send(routing_id, Encode(Refusal{0, ErrorCode::kUnsupported, kTooOld}))
                 : Send(routing_id, Encode(Welcome{}));
      break;
    case Kind::kPing:
      Decode<Bare>(message);
      sent = Send(routing_id, Encode(Bare{Kind::kPong}));
      break;
    case Kind::kRequest: HandleRequest(routing_id, connection, Decode<Request>(message)); break;
    default: throw Error(ErrorCode::kCorrupt, "an unknown kind of message");
  }
  if (sent == Sent::kNotTaken) connection.Cut();
}

void Service::HandleRequest(const std::string& routing_id, const PeerConnection& connection, const Request& request) {
  try {
    if (!work_.contains(routing_id)) {
      if (work_.size() == kMaxPeers) throw Error(ErrorCode::kResourceExhausted, "too many receivers at one time");
      work_[routing_id].peer = std::make_shared<Peer>(routing_id, connection);
    }
    work_.at(routing_id).replies.Push(request, book_, failpoints_.load());
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;
    work_.erase(routing_id);
    const Sent sent = Send(routing_id, Encode(Refusal{request.ticket, error.code(), error.what()}));
    if (sent == Sent::kNotTaken) connection.Cut();
  }
}

void Service::FeedAll() {
  for (auto at = work_.begin(); at != work_.end();) {
    const bool there = Feed(at->second);
    const bool idle = at->second.replies.empty() && at->second.peer->pieces_under_way == 0;
    at = there && !idle ? std::next(at) : work_.erase(at);
  }
}

bool Service::Feed(Work& work) {
  while (!work.replies.empty() && work.peer->pieces_under_way < kPiecesUnderWay) {
    if (!SendPiece(work)) return false;
    if (work.replies.front().plan.done()) work.replies.Pop();
  }
  return true;
}

bool Service::SendPiece(Work& work) {
  Reply& reply = work.replies.front();
  PiecePool::Filling piece;
  try {
    piece = pieces_.Begin(reply.offered, work.peer);
    if (piece == nullptr) throw Error(ErrorCode::kNotFound, "the offer was removed");
  } catch (const Error& error) {  // or there is no memory for a piece, which other receivers may not need
    Send(work.peer->routing_id, Encode(Refusal{reply.ticket, error.code(), error.what()}));
    return false;
  }
  const ReplyPlan::Next next = reply.plan.Take(kPieceBytes);
  std::span<const std::byte> data = next.in_place;
  if (data.empty()) {
    data = piece->gathered.span().first(reply.plan.Gather(piece->gathered.data(), kPieceBytes));
  }
  const auto bytes = static_cast<std::uint32_t>(data.size());
  zmq::message_t body(const_cast<std::byte*>(data.data()), data.size(), PiecePool::End, piece.get());
  PiecePool::HandOver(std::move(piece));
  // A frame that ZeroMQ does not take gives itself back (PiecePool::End) when it goes out of scope.
  Sent sent = Send(work.peer->routing_id, Encode(PieceHeader{reply.ticket, next.offset, bytes}));
  if (sent == Sent::kTaken) sent = Send(work.peer->routing_id, body);
  if (sent == Sent::kNotTaken) work.peer->connection.Cut();
  return sent == Sent::kTaken;
}

Service::Sent Service::Send(const std::string& routing_id, const std::vector<std::byte>& message) {
  zmq::message_t frame(message.data(), message.size());
  return Send(routing_id, frame);
}

Service::Sent Service::Send(const std::string& routing_id, zmq::message_t& message) {
  zmq::message_t to(routing_id);
  const Sent sent = SendFrame(to, true);
  return sent == Sent::kTaken ? SendFrame(message, false) : sent;
}

Service::Sent Service::SendFrame(zmq::message_t& frame, bool more) {
  MessageLeaves();
  try {
    const auto flags = more ? zmq::send_flags::dontwait | zmq::send_flags::sndmore : zmq::send_flags::dontwait;
    return socket_.send(frame, flags) ? Sent::kTaken : Sent::kNotTaken;
  } catch (const zmq::error_t& error) {
    if (error.num() == EHOSTUNREACH) return Sent::kGone;
    throw;
  }
}

ZmqOfferingEnd::ZmqOfferingEnd(const std::string& bind_host, const Keys& keys)
    : book_("zmq", wake_),
      pieces_(book_, wake_),
      socket_(Bind(bind_host, keys)),
      service_("zmq", "lc-zmq", wake_, [this](const std::stop_token& stop) {
        Service(std::move(socket_), *limits_, *check_, book_, pieces_, wake_, failpoints_).Run(stop);
      }) {}

zmq::socket_t ZmqOfferingEnd::Bind(const std::string& host, const Keys& keys) {
  zmq::socket_t socket = MakeRouter(context_);
  ConnectionLimits::Options limits = ConnectionLimits::Listening(kMaxRequestBytes, keys.given());
  limits.most_unheard = socket.get(zmq::sockopt::rcvhwm);
  limits_.emplace(context_, socket, limits);
  check_.emplace(context_, socket, keys, "zmq");
  const bool ipv6 = host.find(':') != std::string::npos;
  const std::string named = ipv6 && host[0] != '[' ? "[" + host + "]" : host;
  try {
    socket.set(zmq::sockopt::ipv6, ipv6);
    socket.bind("tcp://" + named + ":*");
  } catch (const zmq::error_t& error) {
    throw Error(ErrorCode::kInvalidArgument, "zmq: cannot listen on '" + host + "': " + error.what());
  }
  address_ = socket.get(zmq::sockopt::last_endpoint);
  return socket;
}

void ZmqOfferingEnd::Remove(std::uint64_t offer_id) {
  book_.Remove(offer_id, [this](const auto& offered) { pieces_.Cut(offered); });
}

}  // namespace layercast::zmq_channel
