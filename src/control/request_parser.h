// Parses the messages of an RPC server that are not small, on a thread of its own: JSON of megabytes takes seconds,
// and the server's thread answers pings and `status` meanwhile. Used by RpcServer.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "src/control/json_forms.h"
#include "src/control/open_calls.h"

namespace layercast {

// Resource; thread-safe. Its thread is "lc-parse". How much may wait is its caller's to bound (ConnectionLimits::Hold).
class RequestParser {
 public:
  using Parse = std::function<Json(std::string_view text)>;  // a discarded value if it is none
  struct Request {
    Caller from;
    zmq::message_t body;
    Json parsed = nullptr;
  };

  // `on_parsed` is called on its thread whenever there is something to take.
  RequestParser(Parse parse, std::function<void()> on_parsed);
  ~RequestParser();  // waits for the message at hand
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // In the order in which they were put, they can be taken. What came over a connection that has ended meanwhile is not
  // parsed.
  void Put(Request request);
  std::vector<Request> TakeParsed();
  // Frees what was parsed, which for megabytes takes long as well.
  void Free(Request request);

 private:
  void Run();
  void ParseOne(Request& request) const noexcept;

  const Parse parse_;
  const std::function<void()> on_parsed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> waiting_;  // guarded by mutex_, as the rest
  std::vector<Request> parsed_;
  std::vector<Request> to_free_;
  bool ends_ = false;
  std::jthread thread_;
};

}  // namespace layercast
