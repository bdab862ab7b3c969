#include "src/zmq/message_limit.h"

#include <optional>

namespace layercast {

MessageLimit::MessageLimit(zmq::context_t& context, zmq::socket_t& socket, std::uint64_t most_bytes)
    : events_(context, socket, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED),
      most_bytes_(most_bytes) {}

void MessageLimit::Heard(zmq::message_t& frame) {
  ++heard_;
  if (const auto meter = MeterOf(frame); meter != meters_.end()) meter->second.EndMessage();
}

void MessageLimit::End(zmq::message_t& frame) {
  if (const auto meter = MeterOf(frame); meter != meters_.end()) meter->second.connection().Cut();
}

std::map<int, MessageMeter>::iterator MessageLimit::MeterOf(zmq::message_t& frame) {
  const int fd = zmq_msg_get(frame.handle(), ZMQ_SRCFD);
  const auto known = meters_.find(fd);
  if (known != meters_.end()) return known;
  TakeEvents();  // the connection may be new: it is to be metered from its first message on
  return meters_.find(fd);
}

bool MessageLimit::Enforce(bool all_taken) {
  TakeEvents();
  // ZeroMQ takes from its connections in turn. So once as many messages have been taken as there are connections, every
  // connection that had a message waiting has had one taken.
  if (!all_taken && heard_ < meters_.size()) return false;
  heard_ = 0;
  bool any = false;
  for (auto& [fd, meter] : meters_) {
    if (!meter.Exceeded()) continue;
    meter.connection().Cut();
    any = true;
  }
  return any;
}

void MessageLimit::TakeEvents() {
  while (const std::optional<SocketEvents::Event> event = events_.Next()) {
    meters_.erase(event->value);
    if (event->number != ZMQ_EVENT_DISCONNECTED) meters_.try_emplace(event->value, event->value, most_bytes_);
  }
}

std::string MessageLimit::Complaint() const {
  return "a message has not ended within " + std::to_string(most_bytes_) + " bytes";
}

}  // namespace layercast
