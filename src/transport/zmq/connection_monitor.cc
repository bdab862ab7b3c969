#include "src/transport/zmq/connection_monitor.h"

#include <utility>

#include "src/net/curve/client_keys.h"

namespace layercast::zmq_channel {
namespace {

constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

std::string Meaning(const SocketEvents::Event& event, const Keys& keys) {
  switch (event.number) {
    case ZMQ_EVENT_CLOSED: return "connection refused or timed out";
    case ZMQ_EVENT_DISCONNECTED: return "the connection was lost";
    default: break;
  }
  const std::string words = WordsOfHandshake("it", keys, event.number, event.value);
  return words.empty() ? "the ZeroMQ handshake failed" : words;
}

}  // namespace

ConnectionMonitor::ConnectionMonitor(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes,
                                     Keys keys)
    : events_(context, socket, kEvents), most_bytes_(most_bytes), keys_(std::move(keys)) {}

const std::string& ConnectionMonitor::Ended() {
  while (const std::optional<SocketEvents::Event> event = events_.Next()) {
    if (event->number == ZMQ_EVENT_CONNECTED) {
      meter_.emplace(event->value, most_bytes_);
      continue;
    }
    if (event->number == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
      cut_short_ = Meaning(*event, keys_);
      continue;  // ZMQ_EVENT_DISCONNECTED follows
    }
    meter_.reset();  // its descriptor may be another connection's by now
    if (ended_.empty()) ended_ = cut_short_.empty() ? Meaning(*event, keys_) : cut_short_;
  }
  return ended_;
}

bool ConnectionMonitor::WasCutShort() {
  if (Ended().empty() || cut_short_.empty()) return false;
  ended_.clear();
  cut_short_.clear();
  return true;
}

bool ConnectionMonitor::Moved() {
  const std::uint64_t received = meter_ ? meter_->connection().Traffic().received : 0;
  return std::exchange(received_, received) < received;
}

void ConnectionMonitor::EndMessage(std::size_t bytes) {
  if (meter_) meter_->EndMessage(bytes);
}

bool ConnectionMonitor::IsEndless() {
  if (!meter_ || !meter_->IsEndless()) return false;
  meter_->connection().Cut();
  return true;
}

}  // namespace layercast::zmq_channel
