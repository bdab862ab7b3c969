#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "layercast/error.h"
#include "src/base/bytes/shallow_json.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"
#include "src/control/open_calls.h"
#include "src/control/request_parser.h"
#include "src/control/rpc.h"
#include "src/net/curve/key_check.h"
#include "src/net/limits/connection_limits.h"
#include "src/net/limits/peer_ledger.h"
#include "src/net/limits/take_turn.h"
#include "src/net/wake_up.h"
#include "src/net/zmq/listening.h"
#include "src/net/zmq/poll_sockets.h"
#include "src/net/zmq/zmq_context.h"

namespace layercast {
namespace {

constexpr std::size_t kSmallMessage = 16 << 10;     // bytes; parsed in a fraction of a millisecond
constexpr int kMostMessages = 1000;                 // that wait for a client to take them
constexpr std::size_t kLongestMethod = 256;         // bytes; errors about a method have its name
constexpr std::chrono::seconds kBarredAtLeast{30};  // a client that was cut off

// The host of a client may vanish without a word. Its kernel is asked after so much silence, so often.
constexpr int kSilentSeconds = 15;
constexpr int kSecondsBetweenProbes = 5;
constexpr int kProbes = 3;
constexpr int kUntakenMs = 30'000;  // what was sent to it, and not acknowledged by its kernel

Json ParseShallow(std::string_view text) { return ParseShallowJson<Json>(text); }

// Throws unless it is a request. All that an answer repeats of it is short.
void CheckRequest(const Json& message) {
  if (!message.is_object() || !message.contains("method") || !message["method"].is_string()) {
    throw Error(ErrorCode::kInvalidArgument, "expected an object with 'id', 'method' and 'params' (docs: RPC.md)");
  }
  if (message.contains("id") && !message["id"].is_number()) {
    throw Error(ErrorCode::kInvalidArgument, std::string("'id': expected a number, got ") + message["id"].type_name());
  }
  const std::size_t bytes = message["method"].get_ref<const std::string&>().size();
  if (bytes <= kLongestMethod) return;
  throw Error(ErrorCode::kInvalidArgument,
              "'method': expected at most " + std::to_string(kLongestMethod) + " bytes, got " + std::to_string(bytes));
}

// The member if it is a number; else null.
Json NumberIn(const Json& message, const char* name) {
  const bool there = message.is_object() && message.contains(name) && message[name].is_number();
  return there ? message[name] : Json(nullptr);
}

// Answers on their way to the thread that owns the socket. Thread-safe. Shared by the server and its replies, which may
// outlive the server.
struct Answers {
  struct Answer {
    Caller to;
    std::uint64_t call;  // its number
    std::string text;
  };
  std::mutex mutex;
  std::vector<Answer> waiting;                  // guarded by mutex
  std::map<ErrorCode, std::uint64_t> refusals;  // guarded by mutex
  WakeUp wake_up;

  void Put(const Caller& to, std::uint64_t call, const Json& answer) {
    // Bytes that are not UTF-8 (in a user's file name, say) are replaced: they must not keep an answer from being sent.
    std::string text = answer.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (std::cmp_greater(text.size(), kMaxRpcBytes)) text = TooLarge(answer.at("id"), text.size()).dump();
    {
      const std::lock_guard lock(mutex);
      if (answer.contains("error")) ++refusals[ErrorFromJson(answer["error"]).code()];
      waiting.push_back({to, call, std::move(text)});
    }
    wake_up.Ring();
  }

 private:
  // The error that is sent instead of an answer beyond kMaxRpcBytes: a client would drop its connection on receiving
  // one.
  static Json TooLarge(const Json& id, std::size_t bytes) {
    const Error error(ErrorCode::kResourceExhausted, "the answer has " + std::to_string(bytes) +
                                                         " bytes, expected at most " + std::to_string(kMaxRpcBytes));
    return {{"id", id}, {"error", ErrorToJson(error)}};
  }
};

}  // namespace

class RpcServer::Impl {
 public:
  Impl(const std::string& endpoint, const Keys& keys, Handler handler, RpcServerOptions options)
      : handler_(std::move(handler)),
        parser_(options.parse ? std::move(options.parse) : RequestParser::Parse(&ParseShallow),
                [answers = answers_] { answers->wake_up.Ring(); }),
        context_(MakeContext("engine '" + endpoint + "'")),
        socket_(context_, zmq::socket_type::router) {
    ConnectionLimits::Options limits =
        ConnectionLimits::Listening(kMaxRpcBytes, keys.given(), options.connection_budget);
    limits.on_end = [this](const PeerConnection& ended) { calls_.End(ended); };
    limits_.emplace(context_, socket_, limits);
    SetKeepAlive();
    socket_.set(zmq::sockopt::linger, 500);
    socket_.set(zmq::sockopt::maxmsgsize, kMaxRpcBytes);
    socket_.set(zmq::sockopt::rcvhwm, ConnectionLimits::kMostUnheard);
    socket_.set(zmq::sockopt::sndhwm, kMostMessages);
    socket_.set(zmq::sockopt::router_mandatory, true);
    check_.emplace(context_, socket_, keys, "engine " + endpoint);
    listening_.emplace(socket_, "engine", endpoint, keys.may_leave_the_host());
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }
  ~Impl() {
    thread_.request_stop();
    answers_->wake_up.Ring();
  }
  const std::string& endpoint() const { return listening_->endpoint(); }
  std::map<ErrorCode, std::uint64_t> refusals() const {
    const std::lock_guard lock(answers_->mutex);
    return answers_->refusals;
  }

 private:
  // The most that is received before answers are sent and a request to stop is noticed.
  static constexpr Turn kTurn{.messages = 16, .bytes = 1 << 20};

  // So that the end of a client's host ends its connection as well.
  void SetKeepAlive() {
    socket_.set(zmq::sockopt::tcp_keepalive, 1);
    socket_.set(zmq::sockopt::tcp_keepalive_idle, kSilentSeconds);
    socket_.set(zmq::sockopt::tcp_keepalive_intvl, kSecondsBetweenProbes);
    socket_.set(zmq::sockopt::tcp_keepalive_cnt, kProbes);
    socket_.set(zmq::sockopt::tcp_maxrt, kUntakenMs);
  }

  void Run(const std::stop_token& stop) {
    NameThisThread("lc-rpc");
    while (!stop.stop_requested()) {
      std::array<zmq::pollitem_t, 3> items = {
          {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, answers_->wake_up.fd(), ZMQ_POLLIN, 0}, check_->item()}};
      PollSockets(items, limits_->look());
      check_->Work(*limits_);
      SendAnswers();
      TakeParsed();
      TakeRequests();
      ledger_.Sweep(kBarredAtLeast);
    }
    SendAnswers();
  }

  void SendAnswers() {
    answers_->wake_up.Clear();
    std::vector<Answers::Answer> waiting;
    {
      const std::lock_guard lock(answers_->mutex);
      waiting.swap(answers_->waiting);
    }
    for (const auto& [to, call, text] : waiting) {
      calls_.Close(to, call);
      Send(to, text);
    }
  }

  void Send(const Caller& to, const std::string& text) {
    if (ledger_.IsBarred(to.routing_id)) return;
    const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
    std::optional<zmq::message_t> charged = ledger_.Charge(to.routing_id, {bytes.begin(), bytes.end()});
    try {
      if (charged && socket_.send(zmq::buffer(to.routing_id), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
        socket_.send(*charged, zmq::send_flags::dontwait);
        return;
      }
      CutOff(to);
    } catch (const zmq::error_t& error) {
      log::debug("a client is gone before its answer: {}", error.what());
    }
  }

  // The client has left too much untaken.
  void CutOff(const Caller& client) {
    ledger_.Bar(client.routing_id);
    log::error(
        "engine {}: a client ({}) loses its connection, because it does not take its answers: expected at most {} "
        "bytes and {} messages to wait for it, got more",
        endpoint(), client.connection.PeerName(), PeerLedger::kMostUntaken, kMostMessages);
    client.connection.Cut();
  }

  void TakeRequests() {
    const auto take = [this](const zmq::message_t& routing_id, zmq::message_t& body) {
      const std::string from = routing_id.to_string();
      if (ledger_.IsBarred(from)) return;
      const Caller caller{from, limits_->ConnectionOf(body)};
      Take(caller, std::move(body));
    };
    const std::string why = TakeTurn(socket_, *limits_, kTurn, take);
    if (!why.empty()) log::warn("engine {}: a client loses its connection: {}", endpoint(), why);
  }

  // What is not small is parsed elsewhere, and what its sender says meanwhile waits behind it, but for pings.
  void Take(Caller from, zmq::message_t body) {
    calls_.Heard(from);
    Json message;
    if (body.size() <= kSmallMessage) {
      message = ParseShallow(body.to_string_view());
      if (const Json ping = NumberIn(message, "ping"); !ping.is_null()) return Send(from, Pong(message, ping).dump());
      if (!in_parser_.contains(from.connection)) return Handle(from, body, message);
    }
    ++in_parser_[from.connection];
    limits_->Hold(from.connection, body.size());
    parser_.Put({.from = std::move(from), .body = std::move(body)});
  }

  static Json Pong(const Json& message, const Json& ping) {
    Json pong = {{"pong", ping}};
    if (message.contains("clock")) pong["clock_ns"] = TraceNow();
    return pong;
  }

  void TakeParsed() {
    for (RequestParser::Request& request : parser_.TakeParsed()) {
      const PeerConnection& connection = request.from.connection;
      limits_->Release(connection, request.body.size());
      if (const auto in_parser = in_parser_.find(connection); --in_parser->second == 0) in_parser_.erase(in_parser);
      const bool there =
          limits_->ConnectionOf(request.body) == connection && !ledger_.IsBarred(request.from.routing_id);
      if (there) Handle(request.from, request.body, request.parsed);
      parser_.Free(std::move(request));
    }
  }

  void Handle(const Caller& from, zmq::message_t& body, Json& message) {
    if (const Json call = NumberIn(message, "cancel"); !call.is_null()) return calls_.GiveUp(from, call);
    const Json id = NumberIn(message, "id");
    const OpenCalls::Call call = calls_.Open(from, id);
    const RpcReply reply(
        [answers = answers_, from, id, number = call.number](Json answer) {
          answer["id"] = id;
          answers->Put(from, number, answer);
        },
        call.abandoned);
    try {
      CheckRequest(message);
      check_->Expect(body, message["method"].get_ref<const std::string&>());
      Json& params = message.emplace("params", Json::object()).first.value();
      handler_(message["method"].get<std::string>(), std::move(params), reply);
    } catch (const std::exception& error) {  // fails this call, not the server
      reply.Failure(ErrorOfCall(error));
    }
  }

  const Handler handler_;
  const std::shared_ptr<Answers> answers_ = std::make_shared<Answers>();  // the other owners are the replies
  OpenCalls calls_;
  RequestParser parser_;
  std::map<PeerConnection, std::size_t> in_parser_;  // how many messages of each
  PeerLedger ledger_{kMaxRpcBytes};                  // outlives the context
  zmq::context_t context_;
  std::optional<ConnectionLimits> limits_;  // watches socket_, and must outlive it
  zmq::socket_t socket_;
  std::optional<KeyCheck> check_;
  std::optional<Listening> listening_;
  std::jthread thread_;
};

RpcServer::RpcServer(const std::string& endpoint, const Keys& keys, Handler handler, RpcServerOptions options)
    : impl_(std::make_unique<Impl>(endpoint, keys, std::move(handler), std::move(options))) {}
RpcServer::~RpcServer() = default;
std::string RpcServer::endpoint() const { return impl_->endpoint(); }
std::map<ErrorCode, std::uint64_t> RpcServer::refusals() const { return impl_->refusals(); }

}  // namespace layercast
