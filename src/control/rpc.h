// Calls between controllers and engines: JSON over ZeroMQ DEALER/ROUTER, one frame a message. RPC.md has the messages.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"

namespace layercast {

// Largest message either way: beyond it the peer is cut off.
inline constexpr std::int64_t kMaxRpcBytes = 32 << 20;

// Answers one request, once, from any thread; the second answer is dropped. Copies answer the same request.
class RpcReply {
 public:
  explicit RpcReply(std::function<void(Json)> send) : send_(std::move(send)) {}
  void Result(Json result) const { send_({{"result", std::move(result)}}); }
  void Failure(const Error& error) const { send_({{"error", ErrorToJson(error)}}); }

 private:
  std::function<void(Json)> send_;
};

// Resource; thread-safe. The thread "lc-rpc" owns the socket and calls the handler, which must not block: what
// takes time is answered later, through the reply. An Error that the handler throws is the answer.
class RpcServer {
 public:
  using Handler = std::function<void(const std::string& method, const Json& params, RpcReply reply)>;

  // Port 0 picks one. Throws kInvalidArgument or kUnavailable naming the endpoint.
  RpcServer(const std::string& endpoint, bool allow_remote, Handler handler);
  ~RpcServer();  // requests under way are not answered any more
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;
  std::string endpoint() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Resource; one thread only.
class RpcClient {
 public:
  // Does not wait. `role` ("engine", "publisher") and endpoint name the peer in errors.
  RpcClient(std::string role, const std::string& endpoint,
            std::chrono::milliseconds peer_timeout = std::chrono::seconds(5));
  ~RpcClient();
  RpcClient(const RpcClient&) = delete;
  RpcClient& operator=(const RpcClient&) = delete;

  // Throws the peer's error as it is; kUnavailable when the peer is silent for peer_timeout (its RPC thread answers
  // pings whatever the engine does); kDeadlineExceeded. All name peer and method.
  Json Call(const std::string& method, const Json& params, Deadline deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
