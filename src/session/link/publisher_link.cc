#include "src/session/link/publisher_link.h"

#include <array>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/base/random_id.h"
#include "src/base/stop_check.h"
#include "src/net/message_order.h"
#include "src/net/zmq/endpoint.h"
#include "src/net/zmq/poll_sockets.h"
#include "src/net/zmq/zmq_context.h"
#include "src/session/link/answer_limits.h"

namespace layercast {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPingInterval{500};
constexpr std::size_t kOnTheirWay = std::size_t{16} << 20;  // bytes that a connection may have when it is lost
constexpr int kFarewellMs = 200;                            // long enough for a last "bye", and bounded
constexpr int kMostSkipped = 100;  // how many irrelevant frames are skipped before deadlines are checked again

}  // namespace

PublisherLink::PublisherLink(PeerName peer, const Keys& keys, milliseconds peer_timeout, std::stop_token stop)
    : peer_(std::move(peer)),
      peer_timeout_(peer_timeout),
      stop_(std::move(stop)),
      session_(RandomId()),
      context_(MakeContext(peer_.text())),
      socket_(context_, zmq::socket_type::dealer),
      last_heard_(Deadline::Clock::now()),
      admission_(peer_.text(), keys),
      last_ping_(last_heard_) {
  limits_.emplace(context_, socket_, ConnectionLimits::Options{.most_bytes = wire::kMaxFrameBytes});
  socket_.set(zmq::sockopt::linger, 0);  // nobody waits for a last word to a publisher that may not be there
  socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxFrameBytes));
  socket_.set(zmq::sockopt::sndhwm, 1000);
  socket_.set(zmq::sockopt::rcvhwm, ConnectionLimits::kMostUnheard);
  socket_.set(zmq::sockopt::ipv6, ReachedByIpv6(peer_.endpoint, Deadline::After(peer_timeout_).OrStop(stop_)));
  ConnectWithKeys(socket_, keys);
  try {
    socket_.connect(peer_.endpoint);
  } catch (const zmq::error_t& error) {
    throw Error(ErrorCode::kInvalidArgument, peer_.role + " endpoint '" + peer_.endpoint + "': " + error.what());
  }
}

bool PublisherLink::CanBeKept() { return heard_ && !WasLost() && limits_->Enforce().empty(); }

void PublisherLink::BeginAnew(milliseconds peer_timeout, std::stop_token stop) {
  peer_timeout_ = peer_timeout;
  stop_ = std::move(stop);
  session_ = RandomId();
  last_heard_ = last_ping_ = Deadline::Clock::now();
  pings_ = pongs_ = 0;
  taken_in_.clear();
  taken_in_bytes_ = 0;
}

void PublisherLink::Send(wire::Message message) {
  const std::string_view name = wire::MessageName(message);
  const std::vector<std::byte> bytes = wire::Encode({.session = session_, .message = std::move(message)});
  if (bytes.size() > wire::kMaxAskBytes) {
    throw Error(ErrorCode::kInvalidArgument, peer_.text() + ": '" + std::string(name) + "' has " +
                                                 std::to_string(bytes.size()) + " bytes, expected at most " +
                                                 std::to_string(wire::kMaxAskBytes));
  }
  if (!heard_ && name != "ping") unheard_.push_back(bytes);
  MessageLeaves();
  if (!socket_.send(zmq::buffer(bytes), zmq::send_flags::dontwait)) {
    if (!heard_ && admission_.IsRefused(*limits_)) return;  // it is among unheard_
    if (heard_ && WasLost()) ThrowLost("sending '" + std::string(name) + "'");
    throw Error(ErrorCode::kUnavailable, peer_.text() + " takes no messages: cannot send '" + std::string(name) + "'");
  }
}

std::optional<wire::Message> PublisherLink::Receive(Deadline deadline, const std::string& stage) {
  while (true) {
    // What has arrived is looked at before silence is judged, because the sink may have kept this thread away for long.
    if (!taken_in_.empty()) {
      TakenIn first = std::move(taken_in_.front());
      taken_in_.pop_front();
      taken_in_bytes_ -= first.bytes;
      return std::move(first.message);
    }
    const bool lost = WasLost();
    if (std::optional<wire::Message> message = TakeOne(stage, lost)) return message;
    KeepAlive(stage, lost);
    if (deadline.Passed()) return std::nullopt;
    std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    PollSockets(items, deadline.AtMost(MessageMeter::kLook).Remaining());
  }
}

wire::Welcome PublisherLink::Greet(const wire::Hello& hello, Deadline deadline) {
  const std::string stage = "opening a session";
  Send(hello);
  wire::Message message = Expect(deadline, stage);
  auto* const welcome = std::get_if<wire::Welcome>(&message);
  if (welcome == nullptr) RefuseAnswer(stage, "'welcome'", message);
  if (welcome->protocol >= wire::kOldestProtocol && welcome->protocol <= wire::kNewestProtocol) {
    return std::move(*welcome);
  }
  throw Error(ErrorCode::kCorrupt, peer_.text() + " chose protocol " + std::to_string(welcome->protocol) +
                                       ", expected " + std::to_string(wire::kOldestProtocol) + " to " +
                                       std::to_string(wire::kNewestProtocol));
}

void PublisherLink::RefuseAnswer(const std::string& stage, const std::string& expected,
                                 const wire::Message& got) const {
  throw Error(ErrorCode::kCorrupt, peer_.text() + ", " + stage + ": expected " + expected + ", got '" +
                                       std::string(wire::MessageName(got)) + "'");
}

void PublisherLink::ExpectAlive(Deadline deadline, const std::string& stage) {
  SendPing(Deadline::Clock::now());
  const std::uint64_t asked = pings_;  // a pong that was on its way already tells nothing of now
  for (TakeIn(0, stage); pongs_ < asked; TakeIn(0, stage)) {
    if (deadline.Passed()) ThrowNoAnswer(stage);
    std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
    PollSockets(items, deadline.AtMost(MessageMeter::kLook).Remaining());
  }
}

void PublisherLink::TakeIn(std::size_t most, const std::string& stage) {
  const bool lost = WasLost();
  while (std::optional<wire::Message> message = TakeOne(stage, lost)) {
    if (taken_in_.size() >= most) RefuseAnswer(stage, "nothing", *message);
    if (taken_in_bytes_ + last_bytes_ > kMostTakenIn) {
      RefuseAnswer(stage, "at most " + std::to_string(kMostTakenIn) + " bytes before any is asked for", *message);
    }
    taken_in_bytes_ += last_bytes_;
    taken_in_.push_back({*std::move(message), last_bytes_});
  }
  KeepAlive(stage, lost);
}

wire::Message PublisherLink::Expect(Deadline deadline, const std::string& stage) {
  if (std::optional<wire::Message> message = Receive(deadline, stage)) return std::move(*message);
  ThrowNoAnswer(stage);
}

// Whether the connection has ended since the publisher was first heard. ZeroMQ connects again, but to a publisher that
// knows nothing of this session; before it, what was sent waits for the next connection. To be asked before what has
// come is taken, which may say why it was ended.
bool PublisherLink::WasLost() {
  const std::uint64_t ended = limits_->Ended();
  if (!heard_) ended_before_ = ended;
  return ended != ended_before_;
}

void PublisherLink::KeepAlive(const std::string& stage, bool lost) {
  ThrowIfStopped(stop_, peer_.text() + ", " + stage);
  if (lost) ThrowLost(stage);
  if (const std::string why = limits_->Enforce(); !why.empty()) {
    throw Error(ErrorCode::kCorrupt, peer_.text() + ", " + stage + ": " + why);
  }
  if (!heard_) AskForAdmission();
  const auto now = Deadline::Clock::now();
  if (now - last_ping_ >= kPingInterval) {
    if (limits_->Moved()) last_heard_ = now;  // a large message may be on its way, behind which pongs wait
    SendPing(now);
  }
  if (std::chrono::floor<milliseconds>(now - last_heard_) >= peer_timeout_) {  // which may be the longest there is
    ThrowIfNotAdmitted(stage);
    throw Error(ErrorCode::kUnavailable, peer_.text() + " was silent for " + std::to_string(peer_timeout_.count()) +
                                             " ms, " + stage + DoubtOfEndpoint(heard_));
  }
}

// A publisher that does not know this end's key has dropped what was sent to it.
void PublisherLink::AskForAdmission() {
  const Admission::Now now = admission_.Look(socket_, *limits_, peer_.endpoint);
  if (now != Admission::Now::kNothing) last_heard_ = Deadline::Clock::now();
  if (now == Admission::Now::kAgain) SendUnheard();
}

void PublisherLink::SendUnheard() {
  for (const std::vector<std::byte>& message : unheard_) {
    static_cast<void>(socket_.send(zmq::buffer(message), zmq::send_flags::dontwait));
  }
}

// A connection may end before anything was heard, and with it what was said, since the publisher has too many. Over the
// next one pings go to a publisher that knows of no session, and says so to each. Then all is said again, once.
bool PublisherLink::SaysItAgain(const wire::Message& answer) {
  const auto* const refused = std::get_if<wire::Refused>(&answer);
  const std::uint64_t ended = limits_->Ended();
  const bool of_a_ping = refused != nullptr && refused->code == ErrorCode::kFailedPrecondition && unknown_ < pings_;
  if (heard_ || ended == 0 || !of_a_ping) return false;
  ++unknown_;
  if (std::exchange(said_after_, ended) == ended) return true;
  pongs_ = pings_;  // none of these has a pong
  SendUnheard();
  return true;
}

void PublisherLink::SendPing(Deadline::Clock::time_point now) {
  // Only a ping that went out and was never answered is silence. If this end itself paused for long, it is not.
  if (now - last_ping_ > 2 * kPingInterval) last_heard_ = now;
  last_ping_ = now;
  ++pings_;
  Send(wire::Ping{});
}

// Takes one message that is neither a pong nor a refusal. `lost`: the connection was, before the message was taken.
std::optional<wire::Message> PublisherLink::TakeOne(const std::string& stage, bool lost) {
  zmq::message_t raw;
  for (int skipped = 0; skipped < kMostSkipped && socket_.recv(raw, zmq::recv_flags::dontwait); ++skipped) {
    MessageHasCome();
    limits_->Heard(raw);
    last_bytes_ = raw.size();
    wire::Frame frame = wire::Decode({static_cast<const std::byte*>(raw.data()), raw.size()});
    if (frame.session != session_) continue;  // from an obsolete attempt
    last_heard_ = Deadline::Clock::now();
    if (SaysItAgain(frame.message)) continue;
    if (!heard_) {
      socket_.set(zmq::sockopt::linger, kFarewellMs);
      admission_.Heard();
      unheard_.clear();
    }
    heard_ = true;
    if (const auto* refused = std::get_if<wire::Refused>(&frame.message)) {
      // One that was started anew at the same endpoint knows no session of the one before.
      if (lost && refused->code == ErrorCode::kFailedPrecondition) ThrowLost(stage);
      throw Error(refused->code, peer_.text() + ", " + stage + ": " + WordsOf(*refused));
    }
    CheckNames(frame.message);
    if (!std::holds_alternative<wire::Pong>(frame.message)) return std::move(frame.message);
    ++pongs_;
  }
  return std::nullopt;
}

void PublisherLink::ThrowLost(const std::string& stage) const {
  throw LostConnection(peer_.text() + ": the connection was lost, " + stage, kOnTheirWay);
}

void PublisherLink::ThrowIfNotAdmitted(const std::string& stage) const {
  if (admission_.why().empty()) return;
  throw Error(kDenied, admission_.why() + ", " + stage);
}

void PublisherLink::ThrowNoAnswer(const std::string& stage) const {
  ThrowIfNotAdmitted(stage);
  throw Error(ErrorCode::kDeadlineExceeded,
              peer_.text() + ", " + stage + ": no answer before the deadline" + DoubtOfEndpoint(heard_));
}

}  // namespace layercast
