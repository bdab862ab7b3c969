#include "src/zmq/connection_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace layercast {
namespace {

ConnectionLimits::Options WithinDescriptors(ConnectionLimits::Options options) {
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    options.most_connections = std::min<std::size_t>(options.most_connections, descriptors.rlim_cur / 4);
  }
  return options;
}

}  // namespace

ConnectionLimits::ConnectionLimits(zmq::context_t& context, zmq::socket_t& socket, const Options& options)
    : events_(context, socket, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED),
      options_(WithinDescriptors(options)) {}

void ConnectionLimits::Heard(zmq::message_t& frame) {
  ++heard_;
  if (const auto found = Of(frame); found != connections_.end()) found->second.meter.EndMessage();
}

void ConnectionLimits::End(zmq::message_t& frame) { PeerConnection(zmq_msg_get(frame.handle(), ZMQ_SRCFD)).Cut(); }

ConnectionLimits::Connections::iterator ConnectionLimits::Of(zmq::message_t& frame) {
  const int fd = zmq_msg_get(frame.handle(), ZMQ_SRCFD);
  const auto known = connections_.find(fd);
  if (known != connections_.end()) return known;
  TakeEvents();  // the connection may be new: it is to be metered from its first message on
  return connections_.find(fd);
}

std::string ConnectionLimits::Enforce(bool all_taken) {
  TakeEvents();
  // ZeroMQ takes from its connections in turn. So once as many messages have been taken as there are connections, every
  // connection that had a message waiting has had one taken.
  if (all_taken || heard_ >= connections_.size()) {
    heard_ = 0;
    for (auto& [fd, connection] : connections_) {
      if (!connection.meter.IsEndless()) continue;
      connection.meter.connection().Cut();
      complaint_ = "a message has not ended within " + std::to_string(options_.most_bytes) +
                   " bytes, or has paused for " + std::to_string(options_.patience.count()) + " ms";
    }
  }
  return std::exchange(complaint_, {});
}

void ConnectionLimits::TakeEvents() {
  while (const std::optional<SocketEvents::Event> event = events_.Next()) {
    connections_.erase(event->value);
    if (event->number == ZMQ_EVENT_DISCONNECTED) continue;
    connections_.try_emplace(event->value,
                             Connection{{event->value, options_.most_bytes, options_.patience}, ++last_number_});
    if (connections_.size() > options_.most_connections) MakeRoom();
  }
}

// Ends the oldest connection over which no message has come, or else the newest of all. So whoever opens many and says
// nothing keeps nobody out for long.
void ConnectionLimits::MakeRoom() {
  std::erase_if(connections_, [](const auto& entry) { return !entry.second.meter.connection().IsOpen(); });
  if (connections_.size() <= options_.most_connections) return;
  const auto by_worth = [](const auto& a, const auto& b) {
    const bool a_heard = a.second.meter.heard();
    if (a_heard != b.second.meter.heard()) return !a_heard;
    return a_heard ? a.second.number > b.second.number : a.second.number < b.second.number;
  };
  const auto least = std::min_element(connections_.begin(), connections_.end(), by_worth);
  least->second.meter.connection().Cut();
  connections_.erase(least);
  complaint_ = "expected at most " + std::to_string(options_.most_connections) + " connections, got more";
}

}  // namespace layercast
