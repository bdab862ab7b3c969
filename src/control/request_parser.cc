#include "src/control/request_parser.h"

#include <exception>
#include <utility>

#include "src/base/log.h"
#include "src/base/threads/thread_name.h"

namespace layercast {

RequestParser::RequestParser(Parse parse, std::function<void()> on_parsed)
    : parse_(std::move(parse)), on_parsed_(std::move(on_parsed)), thread_([this] { Run(); }) {}

RequestParser::~RequestParser() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

void RequestParser::Put(Request request) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(request));
  changed_.notify_all();
}

std::vector<RequestParser::Request> RequestParser::TakeParsed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(parsed_, {});
}

void RequestParser::Free(Request request) {
  const std::lock_guard lock(mutex_);
  to_free_.push_back(std::move(request));
  changed_.notify_all();
}

void RequestParser::ParseOne(Request& request) const noexcept {
  if (!request.from.connection.IsOpen()) return;
  try {
    request.parsed = parse_(request.body.to_string_view());
  } catch (const std::exception& error) {  // no memory, say; the server refuses what is no request
    log::warn("a request of {} bytes cannot be parsed: {}", request.body.size(), error.what());
  }
}

void RequestParser::Run() {
  NameThisThread("lc-parse");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !waiting_.empty() || !to_free_.empty(); });
    if (ends_) return;
    std::vector<Request> freed = std::exchange(to_free_, {});
    const bool any = !waiting_.empty();
    Request request;
    if (any) {
      request = std::move(waiting_.front());
      waiting_.pop_front();
    }
    lock.unlock();
    freed.clear();
    if (any) ParseOne(request);
    lock.lock();
    if (!any) continue;
    parsed_.push_back(std::move(request));
    lock.unlock();
    on_parsed_();
    lock.lock();
  }
}

}  // namespace layercast
