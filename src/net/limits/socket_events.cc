#include "src/net/limits/socket_events.h"

#include <atomic>
#include <cstring>
#include <string>

namespace layercast {

SocketEvents::SocketEvents(zmq::context_t& context, zmq::socket_t& socket, int events)
    : events_(context, zmq::socket_type::pair) {
  static std::atomic<std::uint64_t> made{0};
  const std::string endpoint = "inproc://events-" + std::to_string(++made);
  if (zmq_socket_monitor(socket.handle(), endpoint.c_str(), events) != 0) throw zmq::error_t();
  events_.set(zmq::sockopt::linger, 0);
  events_.set(zmq::sockopt::rcvhwm, 0);  // no limit, at which ZeroMQ's thread would wait for a reader
  events_.connect(endpoint);
}

std::optional<SocketEvents::Event> SocketEvents::Next() {
  zmq::message_t told;
  zmq::message_t address;
  if (!events_.recv(told, zmq::recv_flags::dontwait)) return std::nullopt;
  [[maybe_unused]] const auto taken = events_.recv(address, zmq::recv_flags::dontwait);
  Event event;
  if (told.size() == sizeof(event.number) + sizeof(event.value)) {
    std::memcpy(&event.number, told.data(), sizeof(event.number));
    std::memcpy(&event.value, told.data<std::byte>() + sizeof(event.number), sizeof(event.value));
  }
  return event;
}

}  // namespace layercast
