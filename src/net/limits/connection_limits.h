// Ends those connections of a ZeroMQ socket that take more of a process than their share: over which a message comes
// that does not end (see MessageMeter), those that are too many, those that do not get on with their handshake, and
// those whose messages fill the budget that all of the process share. The constants of all that are here and in
// HandshakeBounds. Used by the RPC, the control links of sessions and the zmq channel.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>
#include <zmq.hpp>

#include "src/net/limits/fair_cuts.h"
#include "src/net/limits/message_meter.h"
#include "src/net/limits/peer_connection.h"
#include "src/net/limits/shared_budget.h"
#include "src/net/limits/socket_events.h"

namespace layercast {

// Resource; one thread only.
class ConnectionLimits {
 public:
  // The high-water mark (rcvhwm) for sockets whose messages may be large: so many messages of each connection wait here
  // to be taken, and further ones at their sender.
  static constexpr int kMostUnheard = 2;
  // No socket has more connections, nor more than half of the descriptors that the process may have.
  static constexpr std::size_t kMostConnections = 1024;

  struct Options {
    std::uint64_t most_bytes = 0;     // of a message, with all its frames
    int most_unheard = kMostUnheard;  // the socket's rcvhwm
    std::chrono::milliseconds patience = MessageMeter::kPatience;
    std::size_t most_connections = kMostConnections;
    // Of a socket that listens: what all connections of the process may have together (SharedBudget), and those of this
    // socket that have not got so far.
    std::optional<std::uint64_t> budget{};
    std::optional<HandshakeBounds> handshakes{};
    // Called once for each connection when it is known to have ended, whoever has ended it: within Heard, Enforce,
    // Moved or Ended. May be empty.
    std::function<void(const PeerConnection&)> on_end{};
  };

  // Options of a socket that listens. `keyed`: only those with keys are heard.
  static Options Listening(std::uint64_t most_bytes, bool keyed, std::optional<std::uint64_t> budget = std::nullopt);

  // Before `socket` binds or connects; `socket` must be closed before this is destroyed (as for SocketEvents).
  ConnectionLimits(zmq::context_t& context, zmq::socket_t& socket, const Options& options);

  // To be called for each whole message that was received, with one of the frames that the peer sent, and the bytes of
  // all of them. `from`: the peer's routing id; empty: the socket has but one peer.
  void Heard(zmq::message_t& frame, std::size_t bytes, std::string_view from = {});
  void Heard(zmq::message_t& frame) { Heard(frame, frame.size()); }
  // Bytes of a message that was Heard, and that wait to be handled until they are Released. They count for the budget,
  // also once the connection has ended.
  void Hold(const PeerConnection& from, std::size_t bytes) { held_[from] += bytes; }
  void Release(const PeerConnection& from, std::size_t bytes);
  // How soon Enforce is to be called again.
  std::chrono::milliseconds look() const { return tight_ ? kTightLook : MessageMeter::kLook; }
  // Ends the connections that are beyond a limit, and returns why; empty: there were none, or others were told of
  // within a second, and these will be. To be called every `look`. `all_taken`: no message was left to receive. If some
  // may be left, no message is judged until each connection has had its turn, because one that only waits to be taken
  // does have an end.
  std::string Enforce(bool all_taken = true);
  // The connection by which a frame came that was Heard, or one that no longer exists. (If the socket's next connection
  // had got its descriptor by then, it is that one: ZeroMQ tells of a frame only the descriptor.)
  PeerConnection ConnectionOf(zmq::message_t& frame) const;
  // The connection by which a frame of this peer came that was Heard, if that is sure: it may be cut for what was said.
  // A connection that has ended leaves messages, at most `most_unheard`, which come when the next one may have its
  // descriptor. So whoever has a descriptor that was another's is known by its routing id, once no message was left to
  // take, or once so many have come that they cannot all be the other's.
  PeerConnection Blamed(zmq::message_t& frame, std::string_view from) const;
  // Connections that were not ended, as far as ZeroMQ has told.
  std::size_t size() const { return connections_.size(); }
  // More than half of those that there may be: connections that are of no use at the moment should go.
  bool crowded() const { return connections_.size() > options_.most_connections / 2; }
  // What has come to this socket and is not handled, by the last look.
  std::uint64_t unhandled() const { return unhandled_; }
  // Whether bytes have come since the last call, even if only part of a message; known of TCP alone.
  bool Moved();
  // Of a socket that connects: how many connections have ended so far whose handshake had succeeded. Whatever came over
  // them can be received by then; over others nothing can have been sent.
  std::uint64_t Ended();
  // The last handshake that has failed since the last call, by ZeroMQ's event (ZMQ_EVENT_HANDSHAKE_FAILED_...).
  struct FailedHandshake {
    std::uint16_t event = 0;
    std::int32_t value = 0;
  };
  std::optional<FailedHandshake> TakeFailedHandshake();
  // Ends the connections that a message was heard from whose user ("User-Id", as the check of keys has named it) is one
  // of these, and returns how many.
  std::size_t CutUsers(const std::function<bool(std::string_view user)>& these);

 private:
  static constexpr std::chrono::milliseconds kTightLook{10};  // while much of the budget is in use
  static constexpr std::chrono::milliseconds kTell{1000};     // strangers shall not fill the log

  struct Connection {
    MessageMeter meter;
    std::uint64_t number;  // by age
    std::string address;   // empty: it is not TCP
    Deadline::Clock::time_point since;
    bool finished;          // its handshake, as far as is known
    bool doubted = false;   // messages of the descriptor's former connection may still come
    std::string user{};     // once a message was heard; empty: there are no keys
    std::string peer{};     // the routing id, once it is sure; empty: it is not
    std::string perhaps{};  // the last that was heard, and
    int perhaps_heard = 0;  // how many times in a row
  };
  using Connections = std::map<int, Connection>;  // by descriptor

  // Who connects has chosen its peer, and knows how slow the link is.
  MessageMeter::Drips drips() const {
    return options_.handshakes ? MessageMeter::Drips::kEnd : MessageMeter::Drips::kAllowed;
  }
  void TakeEvents();
  void NotePeer(Connection& connection, std::string_view from) const;
  Connections::iterator Forget(Connections::iterator connection);
  Connections::iterator Cut(Connections::iterator connection, const std::string& why);
  void CutNumbered(const std::vector<std::uint64_t>& numbers, const std::string& why);
  void MakeRoom();
  void CutEndless();
  void CheckHandshakes();
  void CheckBudget();
  std::string TakeComplaint();

  SocketEvents events_;
  const Options options_;
  std::optional<SharedBudget::Share> share_;  // of a socket that listens
  Connections connections_;
  std::set<int> used_;  // descriptors that some connection has had
  std::uint64_t ended_ = 0;
  std::uint64_t received_ = 0;  // bytes, by the last call of Moved
  std::size_t heard_ = 0;       // messages since the last check
  std::map<PeerConnection, std::uint64_t> held_;
  std::uint64_t unhandled_ = 0;
  bool tight_ = false;
  bool handshaken_ = false;  // the latest connection, of a socket that connects
  Deadline::Clock::time_point looked_{};
  std::string complaint_;  // about the first connection that was cut and not told of, and
  std::size_t more_ = 0;   // how many others
  Deadline::Clock::time_point told_{};
  std::optional<FailedHandshake> failed_;
};

}  // namespace layercast
