// Whoever stands between a receiver and a publisher on the control link, and has what it takes to play the publisher:
// it reads all that is said, and changes it as a test wants.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <zmq.hpp>

#include "src/wire/frames.h"

namespace layercast::testing {

class TamperingPeer {
 public:
  // What becomes of a message; empty: it is kept back. Called by another thread.
  using Change = std::function<std::optional<wire::Message>(wire::Message)>;

  TamperingPeer(std::string publisher, Change ask, Change answer)
      : publisher_(std::move(publisher)), ask_(std::move(ask)), answer_(std::move(answer)) {
    front_.set(zmq::sockopt::linger, 0);
    front_.bind("tcp://127.0.0.1:*");
    endpoint_ = front_.get(zmq::sockopt::last_endpoint);
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  const std::string& endpoint() const { return endpoint_; }
  // The names of all messages that came by, after the thread has ended.
  std::vector<std::string> Heard() {
    thread_ = {};
    return heard_;
  }

  static std::optional<wire::Message> AsItIs(wire::Message message) { return message; }

 private:
  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<zmq::pollitem_t> items = {{front_.handle(), 0, ZMQ_POLLIN, 0}};
      for (auto& [receiver, socket] : to_publisher_) items.push_back({socket.handle(), 0, ZMQ_POLLIN, 0});
      zmq::poll(items, std::chrono::milliseconds(10));
      zmq::message_t from, raw;
      while (front_.recv(from, zmq::recv_flags::dontwait) && front_.recv(raw)) {
        if (const auto frame = Changed(raw, ask_)) Behind(from.to_string()).send(zmq::buffer(*frame));
      }
      for (auto& [receiver, socket] : to_publisher_) {
        while (socket.recv(raw, zmq::recv_flags::dontwait)) {
          const auto frame = Changed(raw, answer_);
          if (!frame) continue;
          front_.send(zmq::buffer(receiver), zmq::send_flags::sndmore);
          front_.send(zmq::buffer(*frame));
        }
      }
    }
  }

  zmq::socket_t& Behind(const std::string& receiver) {
    const auto known = to_publisher_.find(receiver);
    if (known != to_publisher_.end()) return known->second;
    zmq::socket_t& socket = to_publisher_.emplace(receiver, zmq::socket_t(context_, ZMQ_DEALER)).first->second;
    socket.set(zmq::sockopt::linger, 0);
    socket.connect(publisher_);
    return socket;
  }

  std::optional<std::vector<std::byte>> Changed(const zmq::message_t& raw, const Change& change) {
    wire::Frame frame = wire::Decode({static_cast<const std::byte*>(raw.data()), raw.size()});
    heard_.emplace_back(wire::MessageName(frame.message));
    std::optional<wire::Message> message = change(std::move(frame.message));
    if (!message) return std::nullopt;
    frame.message = *std::move(message);
    return wire::Encode(frame);
  }

  const std::string publisher_;
  const Change ask_;
  const Change answer_;
  zmq::context_t context_{1};
  zmq::socket_t front_{context_, ZMQ_ROUTER};
  std::string endpoint_;
  std::map<std::string, zmq::socket_t> to_publisher_;  // by receiver
  std::vector<std::string> heard_;                     // of the thread, until it has ended
  std::jthread thread_;
};

}  // namespace layercast::testing
