// One walk of a stream, for all ranks of one engine: yields tensors into a window that is bounded in bytes and in
// tensors, and goes on as the ranks take them. The window being full is what pushes back on the trainer.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "layercast/memory.h"
#include "src/base/failpoint.h"
#include "src/base/worker_pool.h"
#include "src/session/device_bytes.h"
#include "src/session/offered_version.h"
#include "src/session/outbox.h"
#include "src/tensor/axis_amax.h"
#include "src/transport/carried_offer.h"
#include "src/wire/schedule.h"

namespace layercast {

// One rank that takes part.
struct StreamReader {
  SessionKey key;
  std::shared_ptr<const Schedule> schedule;            // the second owner is the service's cache
  std::map<std::uint32_t, AmaxRequest> amax_requests;  // by tensor
};

// What a walk needs of the publisher around it; all of it outlives the walk.
struct StreamEnvironment {
  std::span<OfferingEnd* const> ends;
  MemoryResource& memory;  // of the window: a channel's arena, if one has any
  DeviceBytes* device;     // for tensors that are yielded on one: they go through the window too
  WorkerPool& pool;
  Outbox& outbox;
  FailPoints& failpoints;
  std::uint64_t window_bytes;
  std::uint64_t first_offer_id;  // ids from here on are this walk's
};

// Resource; thread-safe: the walk runs on a thread of its own.
class StreamWalk {
 public:
  StreamWalk(std::shared_ptr<OfferedVersion> version, std::vector<StreamReader> readers,
             const StreamEnvironment& environment);
  ~StreamWalk() = default;  // stops it
  StreamWalk(const StreamWalk&) = delete;
  StreamWalk& operator=(const StreamWalk&) = delete;

  void Done(const SessionKey& reader, std::uint32_t sequence);
  void Leave(const SessionKey& reader);
  bool ended() const;

 private:
  struct Slot {
    Buffer memory;
    std::optional<CarriedOffer> offer;  // goes before the memory
    std::set<SessionKey> awaited;       // readers that still need it
  };
  void Run(const std::stop_token& stop);
  void Fail(const Error& error);
  std::vector<std::string> Order() const;
  void WalkAll(const std::stop_token& stop);
  void Send(std::uint32_t sequence, std::uint32_t tensor, const NamedTensor& named);
  TensorView CopyIn(const NamedTensor& named, const Buffer& slot) const;
  std::vector<Digest> DigestChunks(std::size_t reader, std::uint32_t tensor, Slot& slot);
  bool MakeRoom(std::uint64_t bytes, const std::stop_token& stop);
  void RetireDoneSlots();

  const std::shared_ptr<OfferedVersion> version_;  // the second owner is the publisher
  std::optional<VersionLease> lease_;              // of the walk's thread: until it ends
  const std::vector<StreamReader> readers_;
  const StreamEnvironment environment_;
  std::vector<std::multimap<std::uint32_t, std::uint32_t>> chunks_of_;  // by reader: tensor -> chunk

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::set<SessionKey> present_;         // guarded by mutex_
  std::map<std::uint32_t, Slot> slots_;  // by sequence; guarded by mutex_
  std::uint64_t window_used_ = 0;        // guarded by mutex_
  bool ended_ = false;                   // guarded by mutex_
  std::jthread thread_;                  // last: joined before the rest goes
};

}  // namespace layercast
