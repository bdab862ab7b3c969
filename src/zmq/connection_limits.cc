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
    options.most_connections = std::min<std::size_t>(options.most_connections, descriptors.rlim_cur / 2);
  }
  return options;
}

}  // namespace

ConnectionLimits::ConnectionLimits(zmq::context_t& context, zmq::socket_t& socket, const Options& options)
    : events_(context, socket, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED),
      options_(WithinDescriptors(options)) {}

void ConnectionLimits::Heard(zmq::message_t& frame) {
  ++heard_;
  TakeEvents();  // first: the descriptor may have been another connection's before
  const int fd = zmq_msg_get(frame.handle(), ZMQ_SRCFD);
  if (!connections_.contains(fd)) Know(fd);  // ZeroMQ tells of it later: it is metered from its first message on
  connections_.at(fd).meter.EndMessage();
}

void ConnectionLimits::End(zmq::message_t& frame) { PeerConnection(zmq_msg_get(frame.handle(), ZMQ_SRCFD)).Cut(); }

// Makes the descriptor's connection known, unless it is. What was known of one that has ended is forgotten.
void ConnectionLimits::Know(int fd) {
  const auto known = connections_.find(fd);
  if (known != connections_.end()) {
    if (known->second.meter.connection().IsOpen()) return;
    connections_.erase(known);
  }
  connections_.emplace(fd, Connection{{fd, options_.most_bytes, options_.patience}, ++last_number_});
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
      complaint_ = MessageMeter::Complaint(options_.most_bytes, options_.patience);
    }
  }
  return std::exchange(complaint_, {});
}

void ConnectionLimits::TakeEvents() {
  while (const std::optional<SocketEvents::Event> event = events_.Next()) {
    Know(event->value);
    // The descriptor may be another connection's by now.
    if (event->number == ZMQ_EVENT_DISCONNECTED && !connections_.at(event->value).meter.connection().IsOpen()) {
      connections_.erase(event->value);
    }
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
