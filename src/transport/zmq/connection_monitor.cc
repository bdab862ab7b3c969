#include "src/transport/zmq/connection_monitor.h"

#include <utility>

namespace layercast::zmq_channel {
namespace {

constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

const char* Meaning(std::uint16_t event) {
  switch (event) {
    case ZMQ_EVENT_CLOSED: return "connection refused or timed out";
    case ZMQ_EVENT_DISCONNECTED: return "the connection was lost";
    default: return "the ZeroMQ handshake failed";
  }
}

}  // namespace

ConnectionMonitor::ConnectionMonitor(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes)
    : events_(context, socket, kEvents), most_bytes_(most_bytes) {}

const std::string& ConnectionMonitor::Ended() {
  while (const std::optional<SocketEvents::Event> event = events_.Next()) {
    if (event->number == ZMQ_EVENT_CONNECTED) {
      meter_.emplace(event->value, most_bytes_);
      continue;
    }
    meter_.reset();  // its descriptor may be another connection's by now
    if (ended_.empty()) ended_ = Meaning(event->number);
  }
  return ended_;
}

bool ConnectionMonitor::Moved() {
  const std::uint64_t received = meter_ ? meter_->connection().BytesReceived() : 0;
  return std::exchange(received_, received) < received;
}

void ConnectionMonitor::EndMessage() {
  if (meter_) meter_->EndMessage();
}

bool ConnectionMonitor::IsEndless() {
  if (!meter_ || !meter_->IsEndless()) return false;
  meter_->connection().Cut();
  return true;
}

}  // namespace layercast::zmq_channel
