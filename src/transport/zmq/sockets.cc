#include "src/transport/zmq/sockets.h"

#include "src/transport/zmq/peer.h"
#include "src/transport/zmq/zmq_messages.h"

namespace layercast::zmq_channel {
namespace {

constexpr int kPeerTimeoutMs = 5000;
constexpr int kSendQueue = 1024;  // messages; more than ever wait for a well-behaved peer

void SetCommon(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::linger, 0);  // closing drops what is queued, so that offered memory is not read after it
  socket.set(zmq::sockopt::handshake_ivl, kPeerTimeoutMs);
  socket.set(zmq::sockopt::tcp_maxrt, kPeerTimeoutMs);  // a peer that takes nothing counts as gone, even if frozen
  socket.set(zmq::sockopt::tcp_keepalive, 1);           // and so does one whose host vanished while idle
  socket.set(zmq::sockopt::tcp_keepalive_idle, 30);
  socket.set(zmq::sockopt::sndhwm, kSendQueue);
}

}  // namespace

zmq::socket_t MakeRouter(zmq::context_t& context) {
  zmq::socket_t socket(context, zmq::socket_type::router);
  SetCommon(socket);
  socket.set(zmq::sockopt::router_mandatory, true);  // a lost peer is an error, not silence
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMaxRequestBytes));
  socket.set(zmq::sockopt::rcvhwm, 32);
  return socket;
}

zmq::socket_t MakeDealer(zmq::context_t& context) {
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  SetCommon(socket);
  socket.set(zmq::sockopt::immediate, true);    // nothing is queued for a connection that is not there
  socket.set(zmq::sockopt::reconnect_ivl, -1);  // another publisher at this address would not know our requests
  socket.set(zmq::sockopt::connect_timeout, kPeerTimeoutMs);
  socket.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kMostMessageBytes));
  // More than a publisher has under way for one receiver, so that the connection always drains.
  socket.set(zmq::sockopt::rcvhwm, static_cast<int>(4 * kPiecesUnderWay));
  return socket;
}

}  // namespace layercast::zmq_channel
