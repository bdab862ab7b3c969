// Connections that sessions with publishers, and questions to them, have left open for the next ones: to connect, to
// shake hands and to greet costs more than a small version. A kept connection belongs to no session and holds no
// version. Used by receivers, and by whoever asks a publisher again and again.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "src/base/deadline.h"
#include "src/session/link/publisher_link.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// A data channel that rests (FetchingEnd::Rest). Value; null: there is none.
struct KeptChannel {
  std::string name;
  std::string address;  // without its key
  std::unique_ptr<FetchingEnd> end;
};

// A publisher's control link, and perhaps a channel to it. Value; null: nothing was kept.
struct KeptPeer {
  std::unique_ptr<PublisherLink> link;
  KeptChannel channel{};
};

// Resource; thread-safe. The thread "lc-kept", once something is kept, ends what has been lost or was not used for
// kKeptFor: what is kept costs both ends descriptors, and nobody may ever ask for it again.
class KeptPeers {
 public:
  static constexpr std::size_t kMost = 8;  // the one that was kept first goes for one more
  static constexpr std::chrono::seconds kKeptFor{60};
  // How long the first answer over a kept link may take before a new one is tried: its host may have vanished.
  static constexpr std::chrono::milliseconds kAnswer{1000};

  KeptPeers() = default;
  ~KeptPeers();
  KeptPeers(const KeptPeers&) = delete;
  KeptPeers& operator=(const KeptPeers&) = delete;

  // What is kept of that peer, which is the caller's from now on. Nothing that is known to be lost.
  KeptPeer Take(const PeerName& peer);
  // Nothing may be under way over it.
  void Keep(KeptPeer peer) noexcept;
  // Ends all that is kept.
  void Clear();
  std::size_t size() const;

 private:
  struct Kept {
    KeptPeer peer;
    Deadline until;
  };
  void Run(const std::stop_token& stop);
  // Takes those out that meet the condition, to be ended without the lock: ZeroMQ may take its time.
  std::list<Kept> TakeOut(const std::function<bool(Kept&)>& these);

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::list<Kept> kept_;  // the first one kept first; guarded by mutex_
  std::jthread thread_;   // started under mutex_
};

}  // namespace layercast
