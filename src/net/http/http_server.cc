#include "src/net/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <system_error>
#include <thread>
#include <utility>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"
#include "src/net/accept_pause.h"
#include "src/net/http/http_listener.h"
#include "src/net/http/http_visitors.h"
#include "src/net/keys/key_file.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kIdle{1'000};

HttpRules RulesOf(const HttpServerOptions& options) {
  HttpRules rules{.open_paths = options.open_paths, .most_body_bytes = options.bounds.body_bytes};
  if (!options.key_file.empty()) rules.key = HttpKeyHash(ReadSecretLine(options.key_file));
  rules.local = !rules.key && !options.insecure;
  return rules;
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(const HttpServerOptions& options, HttpExchange::Handler handler)
      : bounds_(options.bounds),
        visitors_(kMostAsking, kMostOpen, options.bounds.in_peace),
        exchange_(RulesOf(options), std::move(handler),
                  [this](const HttpConnection& connection) { visitors_.Asked(connection); }),
        listener_(options.bind, !options.key_file.empty() || options.insecure),
        thread_([this] { Run(); }) {}

  ~Impl() {
    ending_.Ring();
    thread_.join();
    calls_.clear();
  }

  std::string address() const { return listener_.address(); }

 private:
  // A connection and its thread, which says when it is done.
  struct Call {
    std::atomic<bool> done{false};
    std::jthread thread;
  };

  void Run() {
    NameThisThread("lc-http");
    AcceptPause pause;
    while (true) {
      std::array<pollfd, 2> items{{{ending_.fd(), POLLIN, 0}, {listener_.fd(), pause.events(), 0}}};
      ::poll(items.data(), items.size(), static_cast<int>(pause.AtMost(kIdle).count() / 1000));
      if (items[0].revents != 0) return;
      calls_.remove_if([](const Call& call) { return call.done.load(); });
      if (items[1].revents == 0) continue;
      UniqueFd socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) {
        pause.Failed(errno);
      } else {
        Take(std::move(socket));
      }
    }
  }

  void Take(UniqueFd socket) {
    const int yes = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));  // streams have small pieces
    ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes));  // for a host that vanishes
    // The thread owns it with what it runs.
    auto connection = std::make_shared<HttpConnection>(std::move(socket), bounds_, ending_);
    if (!visitors_.Enter(*connection)) return log::warn("http: a connection was cut: too many are open");
    Call& call = calls_.emplace_back();
    try {
      call.thread = std::jthread([this, connection, &call] {
        NameThisThread("lc-http-call");
        exchange_.Serve(*connection);
        visitors_.Leave(*connection);
        call.done = true;
      });
    } catch (const std::system_error& error) {  // no thread is left: whoever came is cut
      visitors_.Leave(*connection);
      calls_.pop_back();
      log::warn("http: a connection was cut: {}", error.what());
    }
  }

  const HttpBounds bounds_;
  const WakeUp ending_;
  HttpVisitors visitors_;
  const HttpExchange exchange_;
  const HttpListener listener_;
  std::list<Call> calls_;  // of thread_
  std::jthread thread_;
};

HttpServer::HttpServer(const HttpServerOptions& options, HttpExchange::Handler handler)
    : impl_(std::make_unique<Impl>(options, std::move(handler))) {}
HttpServer::~HttpServer() = default;
std::string HttpServer::address() const { return impl_->address(); }

}  // namespace layercast
