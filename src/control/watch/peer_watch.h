// Asks engines and publishers again and again how they are, each on a thread of its own: one that is dead or slow holds
// up nobody else. Used by `layercast top`, and by
// dashboards of engines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/base/deadline.h"
#include "src/control/json_forms.h"
#include "src/net/keys/keys.h"
#include "src/wire/frames.h"

namespace layercast {

// What is known of a peer. Value.
struct PeerState {
  std::string endpoint;
  bool is_engine = false;                         // else a publisher
  Json engine{};                                  // what an engine said last; null: nothing yet
  std::optional<wire::StatusAnswer> publisher{};  // what a publisher said last
  std::string error{};                            // why it did not answer when it was asked last; empty: it did
  bool asked = false;                             // at least once
};

// Resource; thread-safe. Its threads are called "lc-watch".
class PeerWatch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{1000};
  static constexpr std::chrono::milliseconds kPatience{3000};  // with one answer

  PeerWatch(const std::vector<std::string>& engines, const std::vector<std::string>& publishers, const Keys& keys);
  ~PeerWatch();  // gives up what it asks
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // What is known now: the engines, then the publishers, in the order in which they were given.
  std::vector<PeerState> Look() const;
  // The same once each has answered or failed to.
  std::vector<PeerState> LookOnceAllAreAsked();

 private:
  void AskEngine(std::size_t peer, const Keys& keys, const std::stop_token& stop);
  void AskPublisher(std::size_t peer, const Keys& keys, const std::stop_token& stop);
  // Calls `ask`, which notes what it hears in the state, once in a period until the stop.
  template <class Ask>
  void Repeat(std::size_t peer, const std::stop_token& stop, const Ask& ask);

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<PeerState> states_;      // guarded by mutex_
  std::vector<std::jthread> threads_;  // by peer
};

}  // namespace layercast
