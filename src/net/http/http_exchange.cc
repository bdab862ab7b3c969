#include "src/net/http/http_exchange.h"

#include <httplib.h>

#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "src/base/log.h"

namespace layercast {
namespace {

// A connection as cpp-httplib reads and writes it.
class BoundedStream final : public httplib::Stream {
 public:
  explicit BoundedStream(HttpConnection& connection) : connection_(connection) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return connection_.ClientIsThere(); }
  ssize_t read(char* to, size_t bytes) override { return static_cast<ssize_t>(connection_.Read(to, bytes)); }
  ssize_t write(const char* from, size_t bytes) override {
    return connection_.Write({from, bytes}) ? static_cast<ssize_t>(bytes) : -1;
  }
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return connection_.fd(); }

  HttpConnection& connection() const { return connection_; }

 private:
  HttpConnection& connection_;
};

HttpHead HeadOf(const httplib::Request& request) {
  return {.method = request.method,
          .path = request.path,
          .host = request.get_header_value("Host"),
          .authorization = request.get_header_value("Authorization"),
          .content_type = request.get_header_value("Content-Type"),
          .content_encoding = request.get_header_value("Content-Encoding"),
          .content_length = request.get_header_value("Content-Length")};
}

void Set(httplib::Response& response, HttpAnswer answer) {
  response.status = answer.status;
  for (const auto& [name, value] : answer.headers) response.set_header(name, value);
  if (!answer.next) return response.set_content(answer.body, answer.type);
  response.set_chunked_content_provider(answer.type,
                                        [next = std::move(answer.next)](size_t /*offset*/, httplib::DataSink& sink) {
                                          const std::optional<std::string> piece = next();
                                          if (piece) return sink.write(piece->data(), piece->size());
                                          sink.done();
                                          return true;
                                        });
}

}  // namespace

// cpp-httplib's server without its sockets and threads, which have no bounds of the kind that is wanted here.
class HttpExchange::Impl final : httplib::Server {
 public:
  Impl(HttpRules rules, HttpExchange::Handler handler, std::function<void(const HttpConnection&)> asked)
      : rules_(std::move(rules)), handler_(std::move(handler)), asked_(std::move(asked)) {
    svr_sock_ = 0;  // else it believes that it is ending, and sends no stream
    set_default_headers({{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}});
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      return Begin(request, response) ? HandlerResponse::Handled : HandlerResponse::Unhandled;
    });
    Post("/.*", [this](const httplib::Request& request, httplib::Response& response,
                       const httplib::ContentReader& read) { AnswerPost(request, response, read); });
    set_error_handler([this](const httplib::Request&, httplib::Response& response) {
      if (response.body.empty()) Set(response, FailureOf(*Connection(), response.status));
    });
    set_exception_handler([](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
      Set(response, ErrorAnswer(500, "internal", "the answer failed"));
    });
  }

  void Serve(HttpConnection& connection) {
    BoundedStream stream(connection);
    bool closed = false;
    Note(&connection);
    try {
      process_request(stream, true, closed, [](httplib::Request& request) {
        // What it would act on, and nobody here wants.
        request.ranges.clear();
        request.headers.erase("Accept-Encoding");
      });
    } catch (const std::exception& error) {
      log::warn("http: {}", error.what());
    }
    Note(nullptr);
    connection.Linger();
  }

 private:
  // Answers what needs no body, or what may not be asked. Returns whether it did.
  bool Begin(const httplib::Request& request, httplib::Response& response) {
    if (std::optional<HttpAnswer> refusal = RefusalOf(HeadOf(request), rules_)) {
      Set(response, std::move(*refusal));
      return true;
    }
    if (request.method == "POST") return false;
    Answer(request, {}, response);
    return true;
  }

  void AnswerPost(const httplib::Request& request, httplib::Response& response, const httplib::ContentReader& read) {
    HttpConnection& connection = *Connection();
    connection.ExpectBody();
    std::string body;
    bool too_long = false;
    const bool whole = read([&](const char* from, size_t bytes) {
      too_long = body.size() + bytes > rules_.most_body_bytes;
      if (!too_long) body.append(from, bytes);
      return !too_long;
    });
    if (!whole) {
      too_long |= connection.too_long();
      return Set(response, FailureOf(connection, too_long ? 413 : 400));
    }
    Answer(request, std::move(body), response);
  }

  void Answer(const httplib::Request& request, std::string body, httplib::Response& response) {
    HttpConnection& connection = *Connection();
    asked_(connection);
    Set(response, handler_({.method = request.method == "HEAD" ? "GET" : request.method,
                            .path = request.path,
                            .body = std::move(body),
                            .connection = connection}));
  }

  // The answer to a request that could not be read, or that nobody has an answer to.
  HttpAnswer FailureOf(const HttpConnection& connection, int status) const {
    if (connection.too_slow()) {
      return ErrorAnswer(408, "deadline_exceeded", "the request took too long to come");
    }
    switch (status) {
      case 404: return ErrorAnswer(404, "not_found", "there is nothing at this path");
      case 413:
        return ErrorAnswer(413, "resource_exhausted",
                           "a body: expected at most " + std::to_string(rules_.most_body_bytes) + " bytes");
      case 414: return ErrorAnswer(414, "invalid_argument", "a path: it is too long");
      default: return ErrorAnswer(status, "invalid_argument", "the request cannot be read");
    }
  }

  // Each has a thread of its own, which cpp-httplib calls back on: by it the connection is found again.
  void Note(HttpConnection* connection) {
    const std::lock_guard lock(mutex_);
    if (connection != nullptr) {
      connections_[std::this_thread::get_id()] = connection;
    } else {
      connections_.erase(std::this_thread::get_id());
    }
  }
  HttpConnection* Connection() {
    const std::lock_guard lock(mutex_);
    return connections_.at(std::this_thread::get_id());
  }

  const HttpRules rules_;
  const HttpExchange::Handler handler_;
  const std::function<void(const HttpConnection&)> asked_;
  std::mutex mutex_;
  std::map<std::thread::id, HttpConnection*> connections_;  // guarded by mutex_
};

HttpExchange::HttpExchange(HttpRules rules, Handler handler, std::function<void(const HttpConnection&)> asked)
    : impl_(std::make_unique<Impl>(std::move(rules), std::move(handler), std::move(asked))) {}
HttpExchange::~HttpExchange() = default;
void HttpExchange::Serve(HttpConnection& connection) const { impl_->Serve(connection); }

}  // namespace layercast
