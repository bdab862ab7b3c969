#include "src/net/limits/connection_limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
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
constexpr int kEvents = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_DISCONNECTED |
                        ZMQ_EVENT_HANDSHAKE_SUCCEEDED | kFailedHandshakes;

// ZeroMQ does not tell of which connection a handshake has succeeded, but bytes do. With keys the server's last word,
// READY, follows 64 bytes of greeting and 170 of WELCOME, once the key was checked. Without, it is the client's that
// counts: its greeting, and a READY that has at least the type of its socket.
bool IsFinished(const PeerTraffic& traffic, bool keyed) {
  constexpr std::uint64_t kBeforeReady = 64 + 170;
  constexpr std::uint64_t kSomeOfReady = 16;
  constexpr std::uint64_t kShortestHandshake = 64 + 27;
  return keyed ? traffic.acknowledged >= kBeforeReady + kSomeOfReady : traffic.received >= kShortestHandshake;
}

}  // namespace

ConnectionLimits::Options ConnectionLimits::Listening(std::uint64_t most_bytes, bool keyed,
                                                      std::optional<std::uint64_t> budget) {
  return {.most_bytes = most_bytes, .budget = budget, .handshakes = HandshakeBounds{.keyed = keyed}};
}

ConnectionLimits::ConnectionLimits(zmq::context_t& context, zmq::socket_t& socket, const Options& options)
    : events_(context, socket, kEvents), options_(WithinDescriptors(options)) {
  // ZeroMQ itself ends what takes longer, whatever it is.
  if (options_.handshakes) {
    share_.emplace(SharedBudget::OfProcess(), options_.budget);
    socket.set(zmq::sockopt::handshake_ivl, static_cast<int>(options_.handshakes->time.count()));
  }
}

void ConnectionLimits::Heard(zmq::message_t& frame, std::size_t bytes, std::string_view from) {
  ++heard_;
  TakeEvents();
  const auto known = connections_.find(zmq_msg_get(frame.handle(), ZMQ_SRCFD));
  if (known == connections_.end()) return;
  known->second.meter.EndMessage(bytes);
  known->second.finished = true;
  NotePeer(known->second, from);
  if (const char* const user = zmq_msg_gets(frame.handle(), "User-Id"); user != nullptr) known->second.user = user;
}

void ConnectionLimits::Release(const PeerConnection& from, std::size_t bytes) {
  const auto held = held_.find(from);
  held->second -= bytes;
  if (held->second == 0) held_.erase(held);
}

PeerConnection ConnectionLimits::ConnectionOf(zmq::message_t& frame) const {
  const auto known = connections_.find(zmq_msg_get(frame.handle(), ZMQ_SRCFD));
  return known == connections_.end() ? PeerConnection() : known->second.meter.connection();
}

PeerConnection ConnectionLimits::Blamed(zmq::message_t& frame, std::string_view from) const {
  const auto known = connections_.find(zmq_msg_get(frame.handle(), ZMQ_SRCFD));
  const bool sure = known != connections_.end() && !from.empty() && known->second.peer == from;
  return sure ? known->second.meter.connection() : PeerConnection();
}

// The events have been taken: so the connection was known before its first message was heard.
void ConnectionLimits::NotePeer(Connection& connection, std::string_view from) const {
  if (!connection.peer.empty()) return;
  if (connection.perhaps != from) {
    connection.perhaps = from;
    connection.perhaps_heard = 0;
  }
  constexpr int kFetched = 1;  // which ZeroMQ has taken out of the queue to look whether there is one
  const bool sure = !connection.doubted || ++connection.perhaps_heard > options_.most_unheard + kFetched;
  if (sure) connection.peer = from;
}

bool ConnectionLimits::Moved() {
  TakeEvents();
  std::uint64_t received = 0;
  for (const auto& [fd, connection] : connections_) received += connection.meter.connection().Traffic().received;
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
  if (all_taken) {
    for (auto& [fd, connection] : connections_) connection.doubted = false;
  }
  TakeEvents();
  // ZeroMQ takes from its connections in turn. So once as many messages have been taken as there are connections, every
  // connection that had a message waiting has had one taken.
  const bool judges = all_taken || heard_ >= connections_.size();
  const std::size_t most = options_.most_connections;
  if (connections_.size() > (judges ? most : most + most / 2)) MakeRoom();
  if (judges) {
    heard_ = 0;
    CutEndless();
  }
  if (const auto now = Deadline::Clock::now(); options_.handshakes && now - looked_ >= look()) {
    looked_ = now;
    for (auto& [fd, connection] : connections_) connection.meter.Look();
    CheckHandshakes();
    CheckBudget();
  }
  return TakeComplaint();
}

void ConnectionLimits::CutEndless() {
  for (auto at = connections_.begin(); at != connections_.end();) {
    const bool endless = at->second.meter.IsEndless();
    at = endless ? Cut(at, MessageMeter::Complaint(options_.most_bytes, options_.patience, drips())) : std::next(at);
  }
}

// Over AF_UNIX nothing is known but the time, which ZeroMQ keeps.
void ConnectionLimits::CheckHandshakes() {
  const HandshakeBounds& bounds = *options_.handshakes;
  const auto now = Deadline::Clock::now();
  std::vector<Handshake> under_way;
  for (auto& [fd, one] : connections_) {
    one.finished = one.finished || one.address.empty() || IsFinished(one.meter.traffic(), bounds.keyed);
    if (one.finished) continue;
    under_way.push_back({.number = one.number,
                         .address = one.address,
                         .received = one.meter.traffic().received,
                         .age = std::chrono::floor<std::chrono::milliseconds>(now - one.since)});
  }
  CutNumbered(HandshakesToCut(std::move(under_way), bounds),
              "expected at most " + std::to_string(bounds.most) + " unfinished handshakes, " +
                  std::to_string(bounds.of_address) + " of them from one address, each of at most " +
                  std::to_string(bounds.bytes) + " bytes, got more");
}

void ConnectionLimits::CheckBudget() {
  unhandled_ = 0;
  for (const auto& [connection, bytes] : held_) unhandled_ += bytes;
  std::vector<Holder> holders;
  for (const auto& [fd, one] : connections_) {
    unhandled_ += one.meter.unhandled();
    const auto held = held_.find(one.meter.connection());
    const std::uint64_t bytes = one.meter.unhandled() + (held == held_.end() ? 0 : held->second);
    const std::string& who = one.user.empty() ? one.address : one.user;
    if (bytes > 0) holders.push_back({.number = one.number, .who = who, .bytes = bytes, .begun = one.meter.begun()});
  }
  const SharedBudget::Verdict verdict = share_->Report(std::move(holders), unhandled_);
  tight_ = verdict.tight;
  CutNumbered(verdict.cut, "expected at most " + std::to_string(verdict.most) +
                               " bytes of all connections' messages to wait or to be unfinished, got more, and it is "
                               "of whoever has most of them");
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
    if (event->number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {  // likewise
      handshaken_ = true;
      continue;
    }
    if (const auto known = connections_.find(event->value); known != connections_.end()) Forget(known);
    if (event->number == ZMQ_EVENT_DISCONNECTED) {
      if (std::exchange(handshaken_, false)) ++ended_;
      continue;
    }
    handshaken_ = false;
    const bool doubted = !used_.insert(event->value).second;
    const MessageMeter meter(event->value, options_.most_bytes, options_.patience, drips());
    connections_.emplace(event->value, Connection{.meter = meter,
                                                  .number = SharedBudget::NextNumber(),
                                                  .address = meter.connection().Address(),
                                                  .since = Deadline::Clock::now(),
                                                  .finished = false,
                                                  .doubted = doubted});
  }
}

ConnectionLimits::Connections::iterator ConnectionLimits::Forget(Connections::iterator connection) {
  if (options_.on_end) options_.on_end(connection->second.meter.connection());
  return connections_.erase(connection);
}

ConnectionLimits::Connections::iterator ConnectionLimits::Cut(Connections::iterator connection,
                                                              const std::string& why) {
  const PeerConnection& peer = connection->second.meter.connection();
  if (complaint_.empty()) {
    complaint_ = (options_.handshakes ? peer.PeerName() + ": " : "") + why;
  } else {
    ++more_;
  }
  peer.Cut();
  return Forget(connection);
}

void ConnectionLimits::CutNumbered(const std::vector<std::uint64_t>& numbers, const std::string& why) {
  for (const std::uint64_t number : numbers) {
    Cut(std::ranges::find_if(connections_, [&](const auto& one) { return one.second.number == number; }), why);
  }
}

std::string ConnectionLimits::TakeComplaint() {
  const auto now = Deadline::Clock::now();
  if (complaint_.empty() || now - told_ < kTell) return {};
  told_ = now;
  const std::size_t more = std::exchange(more_, 0);
  return std::exchange(complaint_, {}) + (more == 0 ? "" : " (and " + std::to_string(more) + " more were cut)");
}

// Ends those whose other end has gone, of which messages wait here; then the oldest connections whose handshake is not
// finished, then those over which no message has come, or else the newest of all. So whoever opens many and says
// nothing, or says much and goes, keeps nobody out for long.
void ConnectionLimits::MakeRoom() {
  using Worth = std::tuple<bool, bool, bool, std::int64_t, std::uint64_t>;  // and the number
  std::vector<Worth> all;
  for (const auto& [fd, one] : connections_) {
    const bool heard = one.meter.heard();
    const auto age = static_cast<std::int64_t>(one.number);
    all.emplace_back(!one.meter.connection().HasGone(), heard, one.finished, heard ? -age : age, one.number);
  }
  std::ranges::sort(all);
  all.resize(all.size() - options_.most_connections);
  std::vector<std::uint64_t> numbers;
  for (const Worth& one : all) numbers.push_back(std::get<std::uint64_t>(one));
  CutNumbered(numbers, "expected at most " + std::to_string(options_.most_connections) + " connections, got more");
}

}  // namespace layercast
