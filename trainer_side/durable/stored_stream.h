// A version that is published as a stream, on its way into a store: the bytes are written as the trainer's walk passes,
// for it has them once. Used by DurableVersions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "layercast/weights_iterator.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/link/device_bytes.h"
#include "src/store/store_writer.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {

// Resource; thread-safe. Must be owned by a shared_ptr: walks keep it.
class StoredStream : public std::enable_shared_from_this<StoredStream> {
 public:
  struct Parts {
    std::unique_ptr<StoreWriter> writer;
    DeviceBytes& device;
    WorkerPool& pool;
    // Told once, of the record of what has passed, whose objects are on disk.
    std::function<void(VersionRecord whole)> on_whole;
  };
  // `record`: of the version, whose manifest has no digests.
  StoredStream(VersionRecord record, Parts parts) : record_(std::move(record)), parts_(std::move(parts)) {}

  // What the walk yields. If it is the first, or those before it have ended too soon, that is written as it passes.
  // What goes wrong with that is logged, and the walk goes on.
  std::unique_ptr<WeightsIterator> Through(std::unique_ptr<WeightsIterator> walk);

 private:
  class Passing;

  const VersionRecord record_;
  const Parts parts_;  // the writer is the passing walk's
  std::mutex mutex_;
  bool taken_ = false;  // a walk is written, or has been to its end; guarded by mutex_
};

}  // namespace layercast
