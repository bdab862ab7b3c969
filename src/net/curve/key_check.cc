#include "src/net/curve/key_check.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/net/curve/curve_options.h"

namespace layercast {
namespace {

// ZMQ_ZAP_ENFORCE_DOMAIN, whose name is missing from headers without drafts. Without it ZeroMQ admits whoever has any
// key at all while nobody answers for the domain.
constexpr int kEnforceDomain = 93;
constexpr const char* kDomain = "layercast";
constexpr std::chrono::milliseconds kLookAtList{200};
constexpr std::size_t kAtOnce = 64;  // handshakes that are answered before messages have their turn
constexpr std::size_t kMostTold = 256;
constexpr std::size_t kFrames = 7;  // of a question (RFC 27)

void SetAsServer(zmq::socket_t& server, const Keys& keys) {
  server.set(zmq::sockopt::curve_server, true);
  SetKey(server, ZMQ_CURVE_SECRETKEY, keys.server_pair().secret_key.bytes());
  server.set(zmq::sockopt::zap_domain, kDomain);
  const int on = 1;
  if (zmq_setsockopt(server.handle(), kEnforceDomain, &on, sizeof(on)) != 0) {
    throw Error(ErrorCode::kUnsupported,
                "this build's ZeroMQ cannot be told to admit nobody unless a key was checked (option 93)");
  }
  MakeRoomForCurve(server);
}

// The whole question, or fewer frames if it is none.
std::vector<zmq::message_t> Receive(zmq::socket_t& socket) {
  std::vector<zmq::message_t> frames;
  do {
    frames.emplace_back();
    if (!socket.recv(frames.back(), zmq::recv_flags::dontwait)) return {};
  } while (frames.back().more());
  return frames;
}

std::optional<PublicKey> KeyIn(const std::vector<zmq::message_t>& question) {
  if (question.size() != kFrames || question[5].to_string_view() != "CURVE" || question[6].size() != kKeyBytes) {
    return std::nullopt;
  }
  PublicKey key;
  std::memcpy(key.data(), question[6].data(), key.size());
  return key;
}

}  // namespace

KeyCheck::KeyCheck(zmq::context_t& context, zmq::socket_t& server, const Keys& keys, std::string whose)
    : whose_(std::move(whose)) {
  if (!keys.given()) return;
  admitted_.emplace(keys.admitted());
  handshakes_.emplace(context, zmq::socket_type::rep);
  handshakes_->set(zmq::sockopt::linger, 0);
  handshakes_->bind("inproc://zeromq.zap.01");
  SetAsServer(server, keys);
}

zmq::pollitem_t KeyCheck::item() {
  if (!handshakes_) return {nullptr, -1, 0, 0};
  return {handshakes_->handle(), 0, ZMQ_POLLIN, 0};
}

bool KeyCheck::Work(ConnectionLimits& limits) {
  if (!admitted_) return false;
  const auto now = Deadline::Clock::now();
  if (now - looked_ >= kLookAtList) {
    looked_ = now;
    stale_ = admitted_->Refresh() || stale_;
  }
  Answer();
  if (!std::exchange(stale_, false)) return false;
  const std::size_t cut = limits.CutUsers([this](std::string_view user) { return !Knows(user); });
  if (cut > 0) log::warn("{}: {} connections are cut, because their keys are no longer admitted", whose_, cut);
  return true;
}

// As this has told ZeroMQ.
std::string KeyCheck::UserOf(zmq::message_t& frame) {
  const char* const user = zmq_msg_gets(frame.handle(), "User-Id");
  return user == nullptr ? "" : user;
}

void KeyCheck::Answer() {
  for (std::size_t answered = 0; answered < kAtOnce; ++answered) {
    const std::vector<zmq::message_t> question = Receive(*handshakes_);
    if (question.empty()) return;
    const std::optional<PublicKey> key = KeyIn(question);
    stale_ = admitted_->Refresh() || stale_;  // whoever was let in a moment ago is in, and whoever was put out is out
    const bool known = key && admitted_->Find(*key) != nullptr;
    if (key && !known) TellOfWaiting(*key);
    const std::string user = known ? ToText(*key) : "";
    const char* const status = known ? "200" : key ? "400" : "500";
    const std::string_view request = question.size() > 1 ? question[1].to_string_view() : std::string_view();
    for (const std::string_view part :
         {std::string_view("1.0"), request, std::string_view(status),
          std::string_view(known ? "" : "the key is not admitted"), std::string_view(user)}) {
      handshakes_->send(zmq::buffer(part), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    }
    handshakes_->send(zmq::message_t(), zmq::send_flags::dontwait);
  }
}

// Once for each: it asks several times a second, and others may come by the thousand.
void KeyCheck::TellOfWaiting(const PublicKey& key) {
  if (waiting_.size() >= kMostTold) waiting_.clear();
  if (!waiting_.insert(key).second) return;
  log::info("{}: a client waits whose key {} is not in {}", whose_, ShortText(key), admitted_->source());
}

const AdmittedKey* KeyCheck::Find(std::string_view user) const {
  const std::optional<PublicKey> key = KeyFromText(user);
  return key ? admitted_->Find(*key) : nullptr;
}

void KeyCheck::Expect(zmq::message_t& frame, std::string_view request) const {
  if (!admitted_) return;
  const std::string user = UserOf(frame);
  const AdmittedKey* const key = Find(user);
  const std::string who = "key " + (user.empty() ? "(none)" : user.substr(0, 8) + "...");
  if (key == nullptr) {
    throw Error(kDenied, who + " is not in " + admitted_->source());
  }
  const std::optional<Role> role = RoleFor(request);
  if (role && key->roles.Has(*role)) return;
  const std::string needed = role ? "the role '" + std::string(RoleName(*role)) + "'" : "a role that there is not";
  throw Error(kDenied, who + (key->name.empty() ? "" : " (" + key->name + ")") + " may not ask for '" +
                           std::string(request) + "', which needs " + needed + ": it has " + key->roles.Text() +
                           " in " + admitted_->source());
}

}  // namespace layercast
