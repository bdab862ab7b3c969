#include "src/net/http/http_visitors.h"

namespace layercast {

bool HttpVisitors::Enter(const HttpConnection& connection) {
  const std::lock_guard lock(mutex_);
  if (open_.size() >= most_open_) return false;
  const auto now = Deadline::Clock::now();
  open_[&connection] = Visit{.came = now};
  std::size_t asking = 0;
  auto oldest = open_.end();
  for (auto at = open_.begin(); at != open_.end(); ++at) {
    if (!at->second.asking || at->second.cut) continue;
    ++asking;
    if (oldest == open_.end() || at->second.came < oldest->second.came) oldest = at;
  }
  if (asking <= most_asking_ || now - oldest->second.came < in_peace_) return true;
  oldest->second.cut = true;
  oldest->first->Cut();
  return true;
}

void HttpVisitors::Asked(const HttpConnection& connection) {
  const std::lock_guard lock(mutex_);
  open_.at(&connection).asking = false;
}

void HttpVisitors::Leave(const HttpConnection& connection) {
  const std::lock_guard lock(mutex_);
  open_.erase(&connection);
}

}  // namespace layercast
