#include "src/net/curve/client_keys.h"

#include <chrono>
#include <utility>

#include "src/base/log.h"
#include "src/net/curve/curve_options.h"

namespace layercast {
namespace {

constexpr std::int32_t kUnknownKey = 400;  // what KeyCheck answers
constexpr auto kNever = Deadline::Clock::time_point::max();

}  // namespace

void ConnectWithKeys(zmq::socket_t& socket, const Keys& keys) {
  if (!keys.given()) return;
  SetKey(socket, ZMQ_CURVE_SERVERKEY, keys.server());
  SetKey(socket, ZMQ_CURVE_PUBLICKEY, keys.client().public_key);
  SetKey(socket, ZMQ_CURVE_SECRETKEY, keys.client().secret_key.bytes());
  MakeRoomForCurve(socket);
}

std::string WordsOfHandshake(const std::string& peer, const Keys& keys, std::uint16_t event, std::int32_t value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
    if (value != kUnknownKey) return peer + " cannot tell whether it knows this key: ZAP " + std::to_string(value);
    return peer + " does not know this key: " + (keys.given() ? ShortText(keys.client().public_key) : "none was given");
  }
  const bool mismatch = event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  if (mismatch && !keys.given()) {
    return peer + " wants keys, none given (--keys or --secret, LAYERCAST_KEYS or LAYERCAST_SECRET)";
  }
  if (mismatch) return peer + " has no keys, and this process does (" + ShortText(keys.client().public_key) + ")";
  if (!keys.given()) return "";
  // A server of that key would have gone on; so this one has another, or no keys, or has ended in this moment.
  return peer + " proved another server key than " + ShortText(keys.server()) + ", or none at all";
}

bool Admission::IsRefused(ConnectionLimits& limits) {
  if (const auto failed = limits.TakeFailedHandshake()) {
    const std::string words = WordsOf(*failed);
    const bool waits = failed->event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    if (!words.empty() && words != why_) log::warn("{}{}", words, waits ? "; waiting until it does" : "");
    if (!words.empty()) why_ = words;
    // ZeroMQ does not connect again after these two. An unknown key may be admitted; who has no keys will not get some.
    refused_ = waits || failed->event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
    asked_at_ = waits ? Deadline::Clock::now() : kNever;
  }
  return refused_;
}

// A server with keys may end the connection of a client without before that one has read that it wants some. Once, that
// may be anything; it is not by chance that it happens again.
std::string Admission::WordsOf(const ConnectionLimits::FailedHandshake& failed) {
  const bool broken_off = failed.event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL && !keys_.given();
  broken_off_ = broken_off ? broken_off_ + 1 : 0;
  if (broken_off_ < 2) return WordsOfHandshake(peer_, keys_, failed.event, failed.value);
  return WordsOfHandshake(peer_, keys_, ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL, failed.value) +
         ", or ends connections for another reason";
}

Admission::Now Admission::Look(zmq::socket_t& socket, ConnectionLimits& limits, const std::string& endpoint) {
  if (!IsRefused(limits) || asked_at_ == kNever) return Now::kNothing;
  if (Deadline::Clock::now() - asked_at_ < kAskAgain) return Now::kWaits;
  refused_ = false;
  try {
    socket.disconnect(endpoint);  // ZeroMQ connects only once to an endpoint
  } catch (const zmq::error_t&) {
  }
  socket.connect(endpoint);
  return Now::kAgain;
}

void Admission::Heard() {
  why_.clear();
  broken_off_ = 0;
  refused_ = false;
}

}  // namespace layercast
