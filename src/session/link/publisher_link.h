// The receiver's end of the control link to one publisher or relay. It sends and receives the frames of one session at
// a time, keeps the lease alive with pings, and tells a silent publisher from a slow one. Resource; one thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <zmq.hpp>

#include "src/base/deadline.h"
#include "src/net/curve/client_keys.h"
#include "src/net/limits/connection_limits.h"
#include "src/session/link/naming_peer.h"
#include "src/wire/frames.h"

namespace layercast {

class PublisherLink {
 public:
  // Does not wait; a publisher that is not there shows as silence later. Once `stop` is requested, every wait soon ends
  // in kCancelled. While the publisher says that it does not know this end's key, it does not count as
  // silent: the key may be admitted meanwhile. Throws kInvalidArgument on a malformed endpoint.
  PublisherLink(PeerName peer, const Keys& keys, std::chrono::milliseconds peer_timeout, std::stop_token stop = {});

  // Whether the next session may have this link: the publisher was heard, and the connection is still the same.
  bool CanBeKept();
  // Takes the link up for another session, with a timeout and a stop of its own. What still comes of the last one is
  // dropped.
  void BeginAnew(std::chrono::milliseconds peer_timeout, std::stop_token stop);

  void Send(wire::Message message);
  // The next message that is not a pong, or nullopt if the deadline passes first. Throws the error that the publisher
  // refused with, kUnavailable if it has been silent for peer_timeout or the connection was lost, or kPermissionDenied
  // if it was silent because keys do not fit. All name it and `stage`.
  std::optional<wire::Message> Receive(Deadline deadline, const std::string& stage);
  // As Receive, but throws kDeadlineExceeded if the deadline passes.
  wire::Message Expect(Deadline deadline, const std::string& stage);

  // Asks the publisher whether it is there, and waits for its answer: for whoever was kept away from the link, and by
  // what the publisher's death may have caused. Throws as TakeIn(0) and Expect do.
  void ExpectAlive(Deadline deadline, const std::string& stage);

  // Keeps the lease alive while this end waits for something else, and keeps what has arrived for Receive. Throws what
  // Receive throws, and kCorrupt if the publisher is more than `most` messages, or kMostTakenIn bytes, ahead.
  static constexpr std::size_t kMostTakenIn = std::size_t{64} << 20;
  void TakeIn(std::size_t most, const std::string& stage);

  // Opens a session with `hello`. Throws as Expect does, and kCorrupt unless this release speaks the protocol that the
  // publisher has chosen.
  wire::Welcome Greet(const wire::Hello& hello, Deadline deadline);

  const PeerName& peer() const { return peer_; }
  // "publisher EP, STAGE: expected 'welcome', got 'pong'"
  [[noreturn]] void RefuseAnswer(const std::string& stage, const std::string& expected, const wire::Message& got) const;

 private:
  bool WasLost();
  void KeepAlive(const std::string& stage, bool lost);
  void SendPing(Deadline::Clock::time_point now);
  void AskForAdmission();
  void SendUnheard();
  // Whether the answer means that what was said was lost.
  bool SaysItAgain(const wire::Message& answer);
  std::optional<wire::Message> TakeOne(const std::string& stage, bool lost);
  void ThrowIfNotAdmitted(const std::string& stage) const;
  [[noreturn]] void ThrowLost(const std::string& stage) const;
  [[noreturn]] void ThrowNoAnswer(const std::string& stage) const;

  const PeerName peer_;
  std::chrono::milliseconds peer_timeout_;
  std::stop_token stop_;
  std::uint64_t session_;
  zmq::context_t context_;
  std::optional<ConnectionLimits> limits_;  // of the socket, which it outlives
  zmq::socket_t socket_;
  Deadline::Clock::time_point last_heard_;
  bool heard_ = false;                           // the publisher has said anything at all
  Admission admission_;                          // until then
  std::vector<std::vector<std::byte>> unheard_;  // what was sent before, but for pings
  std::uint64_t ended_before_ = 0;               // connections, by then
  std::uint64_t said_after_ = 0;                 // how many had ended when that was last said
  std::uint64_t unknown_ = 0;                    // pings that were answered by there being no session, before
  Deadline::Clock::time_point last_ping_;
  std::uint64_t pings_ = 0;  // that were sent
  std::uint64_t pongs_ = 0;  // that have come, one for each ping, in their order
  struct TakenIn {
    wire::Message message;
    std::size_t bytes = 0;
  };
  std::deque<TakenIn> taken_in_;  // what has arrived, for Receive
  std::size_t taken_in_bytes_ = 0;
  std::size_t last_bytes_ = 0;  // the size of the latest message
};

}  // namespace layercast
