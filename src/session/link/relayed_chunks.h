// The chunks of one schedule that a receiver keeps for others, and how many have come. The relay's offer service serves
// it, chunk i as tensor i of an offer.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "layercast/error.h"
#include "layercast/memory.h"
#include "src/session/chunks/kept_chunks.h"
#include "src/session/link/outbox.h"
#include "src/transport/channel/channel.h"
#include "src/wire/schedule.h"

namespace layercast {

// The lineage under which a relay's offers are opened. The step is the offer's number.
inline constexpr const char* kRelayedLineage = "relayed";

// Resource. Place and Ready are for the thread that fills it; the rest is thread-safe.
class RelayedChunks final : public KeptChunks {
 public:
  // Allocates memory for all chunks. Throws kResourceExhausted if `memory` does not have that much.
  RelayedChunks(const Schedule& schedule, MemoryResource& memory);

  std::vector<OfferedTensor> Tensors() const;

  // Followers hear of it.
  void Ready(std::uint32_t chunk) override;
  // Says that no more chunks will come. Followers are refused with this error, now and later.
  void End(const Error& why);

  // From now on, tells `key` through `outbox` how many chunks are there.
  void Follow(const SessionKey& key, Outbox& outbox);
  void Leave(const SessionKey& key);

 private:
  struct Follower {
    SessionKey key;
    Outbox* outbox;
  };
  void Tell(const Follower& follower) const;

  std::deque<std::atomic<bool>> written_;  // by chunk
  std::mutex mutex_;
  std::uint32_t ready_ = 0;          // how many chunks are there; guarded by mutex_
  std::uint32_t told_ = 0;           // how many of them followers were told of; guarded by mutex_
  std::optional<Error> ended_;       // guarded by mutex_
  std::vector<Follower> followers_;  // guarded by mutex_
};

}  // namespace layercast
