#include "src/transport/zmq/connection_monitor.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace layercast::zmq_channel {
namespace {

constexpr const char* kEndpoint = "inproc://monitor";  // private to this end's own context

const char* Meaning(std::uint16_t event) {
  switch (event) {
    case ZMQ_EVENT_CLOSED: return "connection refused or timed out";
    case ZMQ_EVENT_DISCONNECTED: return "the connection was lost";
    default: return "the ZeroMQ handshake failed";
  }
}

}  // namespace

ConnectionMonitor::ConnectionMonitor(zmq::context_t& context, zmq::socket_t& socket)
    : events_(context, zmq::socket_type::pair) {
  constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |
                          ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  if (zmq_socket_monitor(socket.handle(), kEndpoint, kEvents) != 0) throw zmq::error_t();
  events_.set(zmq::sockopt::linger, 0);
  events_.connect(kEndpoint);
}

const std::string& ConnectionMonitor::Ended() {
  zmq::message_t event;
  zmq::message_t address;
  while (events_.recv(event, zmq::recv_flags::dontwait)) {
    [[maybe_unused]] const auto taken = events_.recv(address, zmq::recv_flags::dontwait);
    std::uint16_t number = 0;
    std::int32_t value = -1;
    if (event.size() == sizeof(number) + sizeof(value)) {
      std::memcpy(&number, event.data(), sizeof(number));
      std::memcpy(&value, event.data<std::byte>() + sizeof(number), sizeof(value));
    }
    if (number == ZMQ_EVENT_CONNECTED) {
      connection_.emplace(value);
    } else if (ended_.empty()) {
      ended_ = Meaning(number);
    }
  }
  return ended_;
}

bool ConnectionMonitor::Moved() {
  const std::uint64_t received = connection_ ? connection_->BytesReceived() : 0;
  return std::exchange(received_, received) < received;
}

}  // namespace layercast::zmq_channel
