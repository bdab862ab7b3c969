// Ends of the control link that say what they like, frame by frame: for tests of what the other end makes of it.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <variant>
#include <vector>

#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/net/limits/peer_connection.h"
#include "src/wire/frames.h"

namespace layercast::testing {

class RawReceiver {
 public:
  explicit RawReceiver(const std::string& endpoint, int most_unsent = 1000)
      : socket_(context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndhwm, most_unsent);
    socket_.set(zmq::sockopt::rcvtimeo, 20'000);
    socket_.connect(endpoint);
  }
  void Send(const std::vector<std::byte>& bytes) { socket_.send(zmq::buffer(bytes)); }
  void Send(const wire::Message& message) { Send(wire::Encode({.session = 5, .message = message})); }
  // False: the publisher has not taken enough of what was sent before.
  bool SendWithin(const std::vector<std::byte>& bytes, std::chrono::milliseconds time) {
    socket_.set(zmq::sockopt::sndtimeo, static_cast<int>(time.count()));
    return socket_.send(zmq::buffer(bytes)).has_value();
  }
  std::vector<std::byte> ReceiveBytes() {
    zmq::message_t raw;
    if (!socket_.recv(raw)) throw Error(ErrorCode::kDeadlineExceeded, "the publisher said nothing");
    return {static_cast<const std::byte*>(raw.data()), static_cast<const std::byte*>(raw.data()) + raw.size()};
  }
  wire::Message Receive() { return wire::Decode(ReceiveBytes()).message; }
  std::string Refusal() {
    const wire::Message message = Receive();
    const auto* refused = std::get_if<wire::Refused>(&message);
    return refused == nullptr ? "not refused" : refused->message;
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_;
};

// Talks to one receiver.
class RawPublisher {
 public:
  explicit RawPublisher(int most_unsent = 1000, const std::string& endpoint = "tcp://127.0.0.1:*")
      : socket_(context_, zmq::socket_type::router) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndhwm, most_unsent);
    socket_.set(zmq::sockopt::rcvtimeo, 20'000);
    socket_.bind(endpoint);
  }
  std::string endpoint() const { return socket_.get(zmq::sockopt::last_endpoint); }
  // The next frame that is no ping.
  std::vector<std::byte> ReceiveBytes() {
    while (true) {
      zmq::message_t from, raw;
      if (!socket_.recv(from) || !socket_.recv(raw)) {
        throw Error(ErrorCode::kDeadlineExceeded, "the receiver said nothing");
      }
      receiver_ = from.to_string();
      over_ = PeerConnection(zmq_msg_get(raw.handle(), ZMQ_SRCFD));
      const auto* begin = static_cast<const std::byte*>(raw.data());
      const std::vector<std::byte> bytes(begin, begin + raw.size());
      if (!std::holds_alternative<wire::Ping>(wire::Decode(bytes).message)) return bytes;
    }
  }
  // Takes what has come. Whether a hello is part of it.
  bool WasGreetedAgain() {
    zmq::message_t from, raw;
    bool greeted = false;
    while (socket_.recv(from, zmq::recv_flags::dontwait) && socket_.recv(raw)) {
      const wire::Frame frame = wire::Decode({static_cast<const std::byte*>(raw.data()), raw.size()});
      greeted = greeted || std::holds_alternative<wire::Hello>(frame.message);
    }
    return greeted;
  }
  // Ends the connection by which it heard last.
  void Cut() const { over_.Cut(); }
  // Takes whatever comes before it.
  void AwaitPing() {
    zmq::message_t from, raw;
    do {
      if (!socket_.recv(from) || !socket_.recv(raw)) {
        throw Error(ErrorCode::kDeadlineExceeded, "the receiver has sent no ping");
      }
      receiver_ = from.to_string();
    } while (!std::holds_alternative<wire::Ping>(
        wire::Decode({static_cast<const std::byte*>(raw.data()), raw.size()}).message));
  }
  // For so long, and says nothing else.
  void AnswerPings(std::chrono::milliseconds duration) {
    zmq::message_t from, raw;
    zmq::pollitem_t item{socket_.handle(), 0, ZMQ_POLLIN, 0};
    const Deadline deadline = Deadline::After(duration);
    while (zmq::poll(&item, 1, deadline.Remaining()) != 0 && socket_.recv(from) && socket_.recv(raw)) {
      const wire::Frame frame = wire::Decode({static_cast<const std::byte*>(raw.data()), raw.size()});
      receiver_ = from.to_string();
      if (std::holds_alternative<wire::Ping>(frame.message)) Send({frame.protocol, frame.session, wire::Pong{}});
    }
  }
  // False: the receiver has not taken enough of what was sent before.
  bool SendWithin(const wire::Frame& frame, std::chrono::milliseconds time) {
    socket_.set(zmq::sockopt::router_mandatory, true);  // or it would be dropped
    socket_.set(zmq::sockopt::sndtimeo, static_cast<int>(time.count()));
    if (!socket_.send(zmq::buffer(receiver_), zmq::send_flags::sndmore)) return false;
    return socket_.send(zmq::buffer(wire::Encode(frame)), zmq::send_flags::none).has_value();
  }
  void Send(const wire::Frame& frame) {
    socket_.send(zmq::buffer(receiver_), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(wire::Encode(frame)));
  }

 private:
  zmq::context_t context_{1};
  zmq::socket_t socket_;
  std::string receiver_;
  PeerConnection over_;
};

}  // namespace layercast::testing
