#include "src/control/watch/peer_watch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "src/base/threads/thread_name.h"
#include "src/control/rpc.h"
#include "src/session/ask/publisher_status.h"

namespace layercast {

PeerWatch::PeerWatch(const std::vector<std::string>& engines, const std::vector<std::string>& publishers,
                     const Keys& keys) {
  for (const std::string& endpoint : engines) states_.push_back({.endpoint = endpoint, .is_engine = true});
  for (const std::string& endpoint : publishers) states_.push_back({.endpoint = endpoint});
  for (std::size_t peer = 0; peer < states_.size(); ++peer) {
    threads_.emplace_back([this, peer, engine = peer < engines.size(), keys](const std::stop_token& stop) {
      NameThisThread("lc-watch");
      engine ? AskEngine(peer, keys, stop) : AskPublisher(peer, keys, stop);
    });
  }
}

PeerWatch::~PeerWatch() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

template <class Ask>
void PeerWatch::Repeat(std::size_t peer, const std::stop_token& stop, const Ask& ask) {
  while (!stop.stop_requested()) {
    PeerState heard;
    std::string error;
    try {
      ask(heard, Deadline::After(kPatience).OrStop(stop));
    } catch (const std::exception& why) {
      error = why.what();
    }
    std::unique_lock lock(mutex_);
    PeerState& state = states_[peer];
    if (error.empty()) {
      state.engine = std::move(heard.engine);
      state.publisher = std::move(heard.publisher);
    }
    state.error = std::move(error);
    state.asked = true;
    changed_.notify_all();
    changed_.wait_for(lock, stop, kPeriod, [] { return false; });
  }
}

void PeerWatch::AskEngine(std::size_t peer, const Keys& keys, const std::stop_token& stop) {
  const std::string endpoint = states_[peer].endpoint;  // which never changes
  std::optional<RpcClient> client;
  Repeat(peer, stop, [&](PeerState& heard, const Deadline& deadline) {
    if (!client) client.emplace("engine", endpoint, keys, kPatience);
    heard.engine = client->Call("status", Json::object(), deadline);
  });
}

void PeerWatch::AskPublisher(std::size_t peer, const Keys& keys, const std::stop_token& stop) {
  const std::string endpoint = states_[peer].endpoint;
  Repeat(peer, stop, [&](PeerState& heard, const Deadline& deadline) {
    heard.publisher = AskPublisherStatus(endpoint, keys, deadline);
  });
}

std::vector<PeerState> PeerWatch::Look() const {
  const std::lock_guard lock(mutex_);
  return states_;
}

std::vector<PeerState> PeerWatch::LookOnceAllAreAsked() {
  std::unique_lock lock(mutex_);
  // Each asks for no longer than its patience, but for threads that wait for a core.
  changed_.wait_for(lock, 4 * kPatience, [this] { return std::ranges::all_of(states_, &PeerState::asked); });
  return states_;
}

}  // namespace layercast
