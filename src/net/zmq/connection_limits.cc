#include "src/net/zmq/connection_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace layercast {
namespace {

ConnectionLimits::Options WithinDescriptors(ConnectionLimits::Options options) {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    options.most_connections = std::min<std::size_t>(options.most_connections, descriptors.rlim_cur / 2);
  }
  return options;
}

constexpr int kFailedHandshakes =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

}  // namespace

ConnectionLimits::ConnectionLimits(zmq::context_t& context, zmq::socket_t& socket, const Options& options)
    : events_(context, socket, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED | kFailedHandshakes),
      options_(WithinDescriptors(options)) {}

void ConnectionLimits::Heard(zmq::message_t& frame) {
  ++heard_;
  TakeEvents();
  const auto known = connections_.find(zmq_msg_get(frame.handle(), ZMQ_SRCFD));
  if (known == connections_.end()) return;
  known->second.meter.EndMessage();
  if (const char* const user = zmq_msg_gets(frame.handle(), "User-Id"); user != nullptr) known->second.user = user;
}

PeerConnection ConnectionLimits::ConnectionOf(zmq::message_t& frame) const {
  const auto known = connections_.find(zmq_msg_get(frame.handle(), ZMQ_SRCFD));
  return known == connections_.end() ? PeerConnection() : known->second.meter.connection();
}

bool ConnectionLimits::Moved() {
  TakeEvents();
  std::uint64_t received = 0;
  for (const auto& [fd, connection] : connections_) received += connection.meter.connection().BytesReceived();
  return std::exchange(received_, received) < received;
}

std::uint64_t ConnectionLimits::Ended() {
  TakeEvents();
  return ended_;
}

std::optional<ConnectionLimits::FailedHandshake> ConnectionLimits::TakeFailedHandshake() {
  TakeEvents();
  return std::exchange(failed_, std::nullopt);
}

std::size_t ConnectionLimits::CutUsers(const std::function<bool(std::string_view user)>& these) {
  TakeEvents();
  std::size_t cut = 0;
  for (auto at = connections_.begin(); at != connections_.end();) {
    const bool meant = !at->second.user.empty() && these(at->second.user);
    if (meant) at->second.meter.connection().Cut();
    cut += meant ? 1 : 0;
    at = meant ? Forget(at) : std::next(at);
  }
  return cut;
}

std::string ConnectionLimits::Enforce(bool all_taken) {
  TakeEvents();
  if (connections_.size() > options_.most_connections) MakeRoom();
  // ZeroMQ takes from its connections in turn. So once as many messages have been taken as there are connections, every
  // connection that had a message waiting has had one taken.
  if (all_taken || heard_ >= connections_.size()) {
    heard_ = 0;
    for (auto at = connections_.begin(); at != connections_.end();) {
      MessageMeter& meter = at->second.meter;
      const bool endless = meter.IsEndless();
      if (endless) {
        meter.connection().Cut();
        complaint_ = MessageMeter::Complaint(options_.most_bytes, options_.patience);
      }
      at = endless ? Forget(at) : std::next(at);
    }
  }
  return std::exchange(complaint_, {});
}

// ZeroMQ tells of a connection before the first message from it, and of its end before the descriptor is closed. So a
// descriptor that is another's by the time that we look (the next connection's, another socket's or no socket at all)
// is told of as ended later in the same queue; what is in `connections_` when all has been taken is the socket's own.
void ConnectionLimits::TakeEvents() {
  while (const std::optional<SocketEvents::Event> event = events_.Next()) {
    if ((event->number & kFailedHandshakes) != 0) {  // its value is no descriptor
      failed_ = FailedHandshake{event->number, event->value};
      continue;
    }
    if (const auto known = connections_.find(event->value); known != connections_.end()) Forget(known);
    if (event->number == ZMQ_EVENT_DISCONNECTED) {
      ++ended_;
      continue;
    }
    const MessageMeter meter(event->value, options_.most_bytes, options_.patience);
    connections_.emplace(event->value, Connection{meter, ++last_number_});
  }
}

ConnectionLimits::Connections::iterator ConnectionLimits::Forget(Connections::iterator connection) {
  if (options_.on_end) options_.on_end(connection->second.meter.connection());
  return connections_.erase(connection);
}

// Ends the oldest connections over which no message has come, or else the newest of all. So whoever opens many and says
// nothing keeps nobody out for long.
void ConnectionLimits::MakeRoom() {
  const auto by_worth = [](const auto& a, const auto& b) {
    const bool a_heard = a.second.meter.heard();
    if (a_heard != b.second.meter.heard()) return !a_heard;
    return a_heard ? a.second.number > b.second.number : a.second.number < b.second.number;
  };
  while (connections_.size() > options_.most_connections) {
    const auto least = std::min_element(connections_.begin(), connections_.end(), by_worth);
    least->second.meter.connection().Cut();
    Forget(least);
  }
  complaint_ = "expected at most " + std::to_string(options_.most_connections) + " connections, got more";
}

}  // namespace layercast
