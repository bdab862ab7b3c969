// Calls between controllers and engines: JSON over ZeroMQ DEALER/ROUTER, one frame a message. RPC.md has the messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"
#include "src/net/keys/keys.h"
#include "src/trace/trace_clock.h"

namespace layercast {

// The largest message in either direction. A peer that sends a larger one loses its connection.
inline constexpr std::int64_t kMaxRpcBytes = 32 << 20;

// Value; thread-safe. Answers one request. A client takes only the first answer to a request and drops any other.
// Copies answer the same request.
class RpcReply {
 public:
  explicit RpcReply(std::function<void(Json)> send, std::stop_token abandoned = {})
      : send_(std::move(send)), abandoned_(std::move(abandoned)) {}
  void Result(Json result) const { send_({{"result", std::move(result)}}); }
  void Failure(const Error& error) const { send_({{"error", ErrorToJson(error)}}); }
  // Stops once nobody waits for the answer any more: the client has given the call up, or its connection has ended.
  const std::stop_token& abandoned() const { return abandoned_; }

 private:
  std::function<void(Json)> send_;
  std::stop_token abandoned_;
};

// Value.
struct RpcServerOptions {
  // What may wait to be handled of the messages of all connections together, in bytes (ConnectionLimits).
  std::uint64_t connection_budget = std::uint64_t{256} << 20;
  // How a message that is not small is parsed, on a thread of its own; empty: as every other. A test may hold it.
  std::function<Json(std::string_view text)> parse{};
};

// Resource; thread-safe. The thread "lc-rpc" owns the socket and calls the handler, which must not block: it answers
// what takes time later, through the reply. An Error that the handler throws becomes the answer. Messages that are not
// small are parsed by "lc-parse" meanwhile.
class RpcServer {
 public:
  // It may take what it keeps of `params`, which may be megabytes.
  using Handler = std::function<void(const std::string& method, Json&& params, RpcReply reply)>;

  // With port 0 the system picks a free port. With keys, only those whose keys are admitted are heard, and each request
  // needs a role (RoleFor). Throws kInvalidArgument or kUnavailable naming the endpoint, and what Keys throws.
  RpcServer(const std::string& endpoint, const Keys& keys, Handler handler, RpcServerOptions options = {});
  ~RpcServer();  // requests under way are not answered any more
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  std::string endpoint() const;
  // How many requests were answered with an error, by its code.
  std::map<ErrorCode, std::uint64_t> refusals() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Resource; one thread only.
class RpcClient {
 public:
  // Does not wait for the peer. `role` ("engine", "publisher") and the endpoint name the peer in errors. Throws
  // kInvalidArgument if the endpoint is none, and kResourceExhausted if no socket can be made.
  RpcClient(std::string role, const std::string& endpoint, const Keys& keys = {},
            std::chrono::milliseconds peer_timeout = std::chrono::seconds(5));
  ~RpcClient();
  RpcClient(const RpcClient&) = delete;
  RpcClient& operator=(const RpcClient&) = delete;

  // Throws the error that the peer answers, with its code; kUnavailable if the peer is silent for peer_timeout (its RPC
  // thread answers pings whatever the engine is doing), or if no address of its host is known; kDeadlineExceeded;
  // kCancelled if the deadline's stop was requested; kPermissionDenied if the keys do not fit, which is waited for as
  // long as the peer says that it does not know the client's key: it may be admitted meanwhile. All messages name the
  // peer and, once it is called, the method.
  Json Call(const std::string& method, const Json& params, Deadline deadline);
  // Whether the connection has ended since the first call. ZeroMQ connects again, perhaps to a new process.
  bool WasLost();
  // How far the peer's monotonic clock is ahead of this process's, by the shortest of some exchanges. nullopt: it does
  // not say. To be asked of a peer that has answered a call. Throws what Call throws.
  std::optional<ClockOffset> MeasureClock(Deadline deadline);

 private:
  class Impl;
  const std::string peer_;  // "engine tcp://...", for errors
  std::unique_ptr<Impl> impl_;
};

class ReloadTrace;

// Makes a call of an engine, and notes it on the trace, with what the engine answers of its own. The trace may be null.
Json OnTrace(ReloadTrace* trace, const std::string& endpoint, const std::string& method, RpcClient& client,
             const Json& params, Deadline deadline);

}  // namespace layercast
