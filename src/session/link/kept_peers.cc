#include "src/session/link/kept_peers.h"

#include <exception>
#include <iterator>
#include <utility>

#include "src/base/log.h"
#include "src/base/threads/thread_name.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kLookAtKept{500};

}  // namespace

KeptPeers::~KeptPeers() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

KeptPeer KeptPeers::Take(const PeerName& peer) {
  const auto is_it = [&](const Kept& kept) { return kept.peer.link->peer().endpoint == peer.endpoint; };
  std::list<Kept> found = TakeOut(is_it);
  for (Kept& kept : found) {
    if (!kept.until.Passed() && kept.peer.link->CanBeKept()) return std::move(kept.peer);
  }
  return {};
}

void KeptPeers::Keep(KeptPeer peer) noexcept {
  std::list<Kept> too_many;  // ended without the lock
  try {
    if (!peer.link->CanBeKept()) return;
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
    kept_.push_back({std::move(peer), Deadline::After(kKeptFor)});
    if (kept_.size() > kMost) too_many.splice(too_many.end(), kept_, kept_.begin());
    if (kept_.size() == 1) changed_.notify_all();  // it waits without an end while there is nothing
  } catch (const std::exception& error) {          // the next session connects anew
    log::debug("a connection is not kept: {}", error.what());
  }
}

void KeptPeers::Clear() {
  TakeOut([](const Kept&) { return true; });
}

std::size_t KeptPeers::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

std::list<KeptPeers::Kept> KeptPeers::TakeOut(const std::function<bool(Kept&)>& these) {
  std::list<Kept> out;
  const std::lock_guard lock(mutex_);
  for (auto at = kept_.begin(); at != kept_.end();) {
    const auto next = std::next(at);
    if (these(*at)) out.splice(out.end(), kept_, at);
    at = next;
  }
  return out;
}

void KeptPeers::Run(const std::stop_token& stop) {
  NameThisThread("lc-kept");
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [this] { return !kept_.empty(); });
      changed_.wait_for(lock, stop, kLookAtKept, [] { return false; });
    }
    TakeOut([](Kept& kept) { return kept.until.Passed() || !kept.peer.link->CanBeKept(); });
  }
}

}  // namespace layercast
