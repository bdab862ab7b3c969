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
#include <optional>
#include <string>
#include <thread>

#include "layercast/store/store_options.h"
#include "src/session/link/device_bytes.h"
#include "src/session/link/offered_version.h"
#include "src/store/store_writer.h"
#include "trainer_side/durable/stored_stream.h"

namespace layercast {

// Resource; thread-safe. Its thread "lc-store" starts with the first version. Streams are written by their walks; what
// it then writes of them is their record. Must be owned by a shared_ptr if there are any.
class DurableVersions : public std::enable_shared_from_this<DurableVersions> {
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
  // What the walks of a stream are to pass through, so that the store has the version once one of them has been whole.
  // `manifest` is the stream's; `pool` outlives its walks.
  std::shared_ptr<StoredStream> Stream(const Manifest& manifest, const Provenance& provenance, WorkerPool& pool);
  // Says whose that is. To be called before anybody can walk it.
  void Await(const std::shared_ptr<OfferedVersion>& version, const StoredStream* stream);
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
    std::optional<VersionRecord> streamed{};  // whose objects are on disk
  };
  struct Known {
    std::weak_ptr<OfferedVersion> version;
    Durability durability = Durability::kWaiting;
    const StoredStream* stream = nullptr;  // only compared
  };

  void Run(const std::stop_token& stop);
  void PutStreamed(const StoredStream* stream, VersionRecord record);
  void Push(Item item);  // under the lock
  Durability Write(const Item& item, const std::stop_token& stop);
  void WriteSnapshot(const Item& item, const std::stop_token& stop);
  void Forget();                                                  // under the lock
  void Become(const OfferedVersion& version, Durability became);  // under the lock

  const StoreLimits limits_;
  FailPoints& failpoints_;
  DeviceBytes& device_;
  StoreWriter writer_;  // of the thread, but for store()
  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  std::deque<Item> items_;  // the first is being written; guarded by mutex_
  // What became of each; guarded by mutex_. Those that nobody else has any more are forgotten.
  std::map<const OfferedVersion*, Known> known_;
  bool ended_ = false;   // guarded by mutex_
  std::jthread thread_;  // started under mutex_
};

}  // namespace layercast
