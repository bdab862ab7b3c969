// One request over a connection, and its answer: read and written by cpp-httplib, within the connection's bounds.
#pragma once

#include <functional>
#include <memory>

#include "src/net/http/http_answer.h"
#include "src/net/http/http_rules.h"

namespace layercast {

// Resource; thread-safe: many exchanges at once, each on the thread of its connection.
class HttpExchange {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest& request)>;

  // `asked` is told once a request is there as a whole. Throws kUnsupported in a build without cpp-httplib.
  HttpExchange(HttpRules rules, Handler handler, std::function<void(const HttpConnection&)> asked);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  // Reads a request, and answers it. Does not throw.
  void Serve(HttpConnection& connection) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
