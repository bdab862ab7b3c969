// A server of HTTP: listens, takes requests of whoever may ask, and answers them. One request a connection. Used by an
// engine, for its HTTP door and its dashboard.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/net/http/http_answer.h"
#include "src/net/http/http_exchange.h"

namespace layercast {

// Value.
struct HttpServerOptions {
  std::string bind;        // "HOST:PORT"; port 0 picks one
  std::string key_file{};  // whose bearer key whoever asks must have (ReadSecretLine); empty: nobody is asked for one
  bool insecure = false;   // no key, and yet beyond loopback
  std::vector<std::string> open_paths{};  // for which no key is needed
  HttpBounds bounds{};
};

// Resource; thread-safe. The thread "lc-http" takes connections, and each has one of its own, "lc-http-call".
class HttpServer {
 public:
  static constexpr std::size_t kMostAsking = 64;  // whose request has not come; the oldest are cut, after a second
  static constexpr std::size_t kMostOpen = 512;   // in all; more are cut at once

  // `handler` is called on the threads of connections, and may throw nothing. Throws kInvalidArgument for an address
  // that is none, or that other hosts reach where there is neither a key nor `insecure`; kUnavailable if it cannot be
  // bound; kUnsupported in a build without cpp-httplib; and what ReadSecretLine throws.
  HttpServer(const HttpServerOptions& options, HttpExchange::Handler handler);
  ~HttpServer();  // requests under way are given up, as if their clients had gone
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // "127.0.0.1:41234"
  std::string address() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
