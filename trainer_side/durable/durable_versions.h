// Writes a publisher's versions into its store, one after the other, on a thread of its own; the trainer waits for
// none. Used by the publisher.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "layercast/store/store_options.h"
#include "src/session/link/device_bytes.h"
#include "src/session/link/offered_version.h"
#include "src/store/store_writer.h"

namespace layercast {

// Resource; thread-safe. Its thread "lc-store" starts with the first version.
class DurableVersions {
 public:
  // Throws what is wrong with the store's folder. `device` outlives it.
  DurableVersions(const StoreOptions& options, DeviceBytes& device, FailPoints& failpoints);
  ~DurableVersions() { End(); }
  DurableVersions(const DurableVersions&) = delete;
  DurableVersions& operator=(const DurableVersions&) = delete;

  const VersionStore& store() const { return writer_.store(); }
  // Has a snapshot written. Its memory stays until that is done. One that is evicted from memory, or withdrawn, before
  // its turn is left out.
  void Put(const std::shared_ptr<OfferedVersion>& version);
  // Says that a version is there already: it came from there.
  void NoteStored(const std::shared_ptr<OfferedVersion>& version);
  Durability Of(const OfferedVersion& version) const;
  // Waits until it is written or left out. Returns whether it is in the store.
  bool Wait(const OfferedVersion& version, Deadline deadline) const;

  // Returns when all that waits is written, or after `kLongestEnd`; then the rest is left out.
  void End();
  static constexpr std::chrono::minutes kLongestEnd{10};

 private:
  struct Item {
    std::shared_ptr<OfferedVersion> version;  // the other owners are the publisher and its service
    std::uint64_t published_ms = 0;
  };

  void Run(const std::stop_token& stop);
  Durability Write(const Item& item, const std::stop_token& stop);
  void Forget();                                                  // under the lock
  void Become(const OfferedVersion& version, Durability became);  // under the lock

  DeviceBytes& device_;
  StoreWriter writer_;  // of the thread, but for store()
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::deque<Item> items_;  // the first is being written; guarded by mutex_
  // What became of each; guarded by mutex_. Those that nobody else has any more are forgotten.
  std::map<const OfferedVersion*, std::pair<std::weak_ptr<OfferedVersion>, Durability>> known_;
  std::jthread thread_;  // started under mutex_
};

}  // namespace layercast
