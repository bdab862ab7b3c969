#include <array>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/bytes/shallow_json.h"
#include "src/control/rpc.h"
#include "src/net/curve/client_keys.h"
#include "src/net/limits/connection_limits.h"
#include "src/net/zmq/endpoint.h"
#include "src/net/zmq/error_at.h"
#include "src/net/zmq/poll_sockets.h"
#include "src/net/zmq/zmq_context.h"
#include "src/trace/reload_trace.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;
constexpr std::chrono::milliseconds kPingInterval{500};
constexpr std::chrono::milliseconds kClockTime{2'000};

// Does `call`, and turns what ZeroMQ throws, for instance when no descriptor is left, into an Error that names the
// peer.
template <class Call>
auto NamingZmqErrors(const std::string& peer, const Call& call) {
  try {
    return call();
  } catch (const zmq::error_t& error) {
    throw ErrorAt(peer, error);
  }
}

}  // namespace

class RpcClient::Impl {
 public:
  Impl(std::string peer, const std::string& endpoint, const Keys& keys, std::chrono::milliseconds peer_timeout)
      : peer_(std::move(peer)),
        endpoint_(endpoint),
        peer_timeout_(peer_timeout),
        admission_(peer_, keys),
        context_(MakeContext(peer_)),
        socket_(context_, zmq::socket_type::dealer) {
    static_cast<void>(HostOf(endpoint_));  // refuses what is no endpoint
    limits_.emplace(context_, socket_, ConnectionLimits::Options{.most_bytes = kMaxRpcBytes});
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::maxmsgsize, kMaxRpcBytes);
    ConnectWithKeys(socket_, keys);
  }

  bool WasLost() { return connected_ && limits_->Ended() != 0; }

  Json Call(const std::string& method, const Json& params, Deadline deadline) {
    if (!connected_) Connect(method, deadline);
    const std::uint64_t id = ++last_id_;
    const std::uint64_t ended = limits_->Ended();
    const Json request = {{"id", id}, {"method", method}, {"params", params}};
    Send(request, method);
    Json answer;
    try {
      answer = AwaitAnswer(request, method, deadline, ended);
    } catch (const Error& error) {
      // Over a connection that is lost or was cut there is nobody to tell, and ZeroMQ loses what had half arrived if
      // the socket is used once more before it is closed.
      if (error.code() == ErrorCode::kCancelled || error.code() == ErrorCode::kDeadlineExceeded) GiveUp(id);
      throw;
    }
    return Answer(std::move(answer), method);
  }

  std::optional<ClockOffset> MeasureClock(Deadline deadline) {
    constexpr int kExchanges = 8;
    std::optional<ClockOffset> best;
    for (int exchange = 0; exchange < kExchanges && !deadline.Passed(); ++exchange) {
      const std::uint64_t ping = ++last_id_;
      const std::int64_t asked = TraceNow();
      Send({{"ping", ping}, {"clock", true}}, "ping");
      const Json pong = AwaitPong(ping, deadline);
      const std::int64_t came = TraceNow();
      if (!pong.contains("clock_ns")) break;
      const auto said = pong["clock_ns"].get<std::int64_t>();
      best = BetterOffset(best, asked, said, said, came);
    }
    return best;
  }

 private:
  // Null if none comes by the deadline.
  Json AwaitPong(std::uint64_t ping, Deadline deadline) {
    while (!deadline.Passed()) {
      std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
      PollSockets(items, deadline.AtMost(MessageMeter::kLook).Remaining());
      for (zmq::message_t raw; socket_.recv(raw, zmq::recv_flags::dontwait);) {
        limits_->Heard(raw);
        Json message = ParseShallowJson<Json>(raw.to_string_view());
        if (message.is_object() && message.value("pong", Json()) == Json(ping)) return message;
      }
    }
    return nullptr;
  }

  Json AwaitAnswer(const Json& request, const std::string& method, Deadline deadline, std::uint64_t ended) {
    const std::uint64_t id = request.at("id").get<std::uint64_t>();
    Clock::time_point last_heard = Clock::now();
    Clock::time_point next_ping = last_heard;
    bool heard_now = false;
    while (true) {
      if (Clock::now() >= next_ping) {
        Send({{"ping", id}}, method);
        next_ping = Clock::now() + kPingInterval;
      }
      std::array<zmq::pollitem_t, 1> items = {{{socket_.handle(), 0, ZMQ_POLLIN, 0}}};
      PollSockets(items, deadline.AtMost(MessageMeter::kLook).Remaining());
      if (limits_->Moved()) last_heard = Clock::now();
      const bool lost = limits_->Ended() != ended;  // asked before the answer is looked for, which may have come first
      zmq::message_t raw;
      while (socket_.recv(raw, zmq::recv_flags::dontwait)) {
        limits_->Heard(raw);
        last_heard = Clock::now();
        heard_ = heard_now = true;
        admission_.Heard();
        Json message = ParseShallowJson<Json>(raw.to_string_view());
        if (message.is_discarded()) {
          throw Error(
              ErrorCode::kInvalidArgument,
              peer_ + ", '" + method + "': expected an answer in JSON, got something else (a publisher's endpoint?)");
        }
        if (message.is_object() && message.value("id", Json()) == Json(id)) return message;
      }
      if (const std::string why = limits_->Enforce(); !why.empty()) {
        throw Error(ErrorCode::kCorrupt, peer_ + ", '" + method + "': " + why);
      }
      // ZeroMQ connects again, perhaps to a new process, which says pong and knows nothing of the call.
      if (lost && heard_now) {
        throw LostConnection(peer_ + ": the connection was lost, calling '" + method + "'",
                             static_cast<std::size_t>(kMaxRpcBytes));
      }
      if (!heard_now) {
        const Admission::Now now = admission_.Look(socket_, *limits_, endpoint_);
        if (now != Admission::Now::kNothing) last_heard = Clock::now();  // it is there
        if (now == Admission::Now::kAgain) Send(request, method);
      }
      if (std::chrono::floor<std::chrono::milliseconds>(Clock::now() - last_heard) >= peer_timeout_) {
        ThrowIfNotAdmitted(method);
        throw Error(ErrorCode::kUnavailable, peer_ + " was silent for " + std::to_string(peer_timeout_.count()) +
                                                 " ms, calling '" + method + "'" + DoubtOfEndpoint(heard_));
      }
      if (deadline.Stopped()) {
        throw Error(ErrorCode::kCancelled, peer_ + ", '" + method + "': the call was given up before its answer came");
      }
      if (deadline.Passed()) {
        ThrowIfNotAdmitted(method);
        throw Error(ErrorCode::kDeadlineExceeded,
                    peer_ + " did not answer '" + method + "' before the deadline" + DoubtOfEndpoint(heard_));
      }
    }
  }

  // Says why the peer was not heard, if it was for keys that do not fit.
  void ThrowIfNotAdmitted(const std::string& method) const {
    if (admission_.why().empty()) return;
    throw Error(kDenied, admission_.why() + ", calling '" + method + "'");
  }

  // Not before the first call, whose deadline bounds how long the address of a host's name is looked up.
  void Connect(const std::string& method, Deadline deadline) {
    try {
      socket_.set(zmq::sockopt::ipv6, ReachedByIpv6(endpoint_, deadline.AtMost(peer_timeout_)));
    } catch (const Error& error) {
      if (deadline.Stopped()) throw Error(ErrorCode::kCancelled, peer_ + ", '" + method + "': cancelled");
      const ErrorCode code = deadline.Passed() ? ErrorCode::kDeadlineExceeded : error.code();
      throw Error(code, peer_ + ", '" + method + "': " + error.what());
    }
    try {
      socket_.connect(endpoint_);
    } catch (const zmq::error_t& error) {
      throw Error(ErrorCode::kInvalidArgument, peer_ + ": " + error.what());
    }
    connected_ = true;
  }

  void Send(const Json& message, const std::string& method) {
    const std::string text = message.dump();
    if (static_cast<std::int64_t>(text.size()) > kMaxRpcBytes) {
      throw Error(ErrorCode::kInvalidArgument, "'" + method + "': the request has " + std::to_string(text.size()) +
                                                   " bytes, expected at most " + std::to_string(kMaxRpcBytes));
    }
    if (!socket_.send(zmq::buffer(text), zmq::send_flags::dontwait)) {
      if (admission_.IsRefused(*limits_)) return;  // the request is sent anew once the peer is asked again
      throw Error(ErrorCode::kUnavailable, peer_ + " takes no messages, calling '" + method + "'");
    }
  }

  // Tells the peer that nobody waits for the call's answer any more. Where that cannot be sent, so be it: the call has
  // failed already.
  void GiveUp(std::uint64_t id) noexcept {
    try {
      static_cast<void>(socket_.send(zmq::buffer(Json{{"cancel", id}}.dump()), zmq::send_flags::dontwait));
    } catch (const std::exception&) {
    }
  }

  Json Answer(Json message, const std::string& method) const {
    if (message.contains("result")) return std::move(message["result"]);
    throw ErrorFromJson(message.value("error", Json::object()), peer_ + ", '" + method + "': ");
  }

  const std::string peer_;
  const std::string endpoint_;
  const std::chrono::milliseconds peer_timeout_;
  Admission admission_;
  zmq::context_t context_;
  std::optional<ConnectionLimits> limits_;  // watches socket_, and must outlive it
  zmq::socket_t socket_;
  bool connected_ = false;
  std::uint64_t last_id_ = 0;
  bool heard_ = false;  // whether the peer has ever sent anything
};

RpcClient::RpcClient(std::string role, const std::string& endpoint, const Keys& keys,
                     std::chrono::milliseconds peer_timeout)
    : peer_(std::move(role) + " " + endpoint),
      impl_(NamingZmqErrors(peer_, [&] { return std::make_unique<Impl>(peer_, endpoint, keys, peer_timeout); })) {}
RpcClient::~RpcClient() = default;

bool RpcClient::WasLost() { return impl_->WasLost(); }

std::optional<ClockOffset> RpcClient::MeasureClock(Deadline deadline) {
  return NamingZmqErrors(peer_, [&] { return impl_->MeasureClock(deadline); });
}

Json RpcClient::Call(const std::string& method, const Json& params, Deadline deadline) {
  return NamingZmqErrors(peer_, [&] { return impl_->Call(method, params, deadline); });
}

Json OnTrace(ReloadTrace* trace, const std::string& endpoint, const std::string& method, RpcClient& client,
             const Json& params, Deadline deadline) {
  if (trace == nullptr || !trace->wanted()) return client.Call(method, params, deadline);
  const TraceTime begin = TraceTime::clock::now();
  Json answer;
  try {
    answer = client.Call(method, params, deadline);
  } catch (...) {
    trace->Called(endpoint, method, begin);
    throw;
  }
  trace->Called(endpoint, method, begin);
  trace->Came(endpoint, answer, [&] { return client.MeasureClock(Deadline::After(kClockTime)); });
  return answer;
}

}  // namespace layercast
