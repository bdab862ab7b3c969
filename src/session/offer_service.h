// The publishing half of sessions: answers receivers on the control link, offers versions on every data channel. Used
// by the trainer's Publisher, and by anything else that holds a version's bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/failpoint.h"
#include "src/base/worker_pool.h"
#include "src/session/device_bytes.h"
#include "src/session/offered_version.h"

namespace layercast {

struct OfferServiceOptions {
  std::string endpoint;  // to bind; port 0 picks one
  bool allow_remote = false;
  std::string name;                                  // "run-17": in handshakes and logs
  std::uint64_t stream_window_bytes = 256U << 20;    // shared by the walks that are under way
  std::chrono::milliseconds peer_timeout{5000};      // what receivers use; a lease lasts six times as long
  std::chrono::milliseconds eviction_time{600'000};  // that those who read a version have once it is withdrawn
  std::size_t max_sessions = 1024;
  std::vector<std::string> channels{};  // that are offered; empty: all that this build has
  std::size_t nccl_fleet = 1;           // receivers that `nccl` serves together
  bool probe = true;                    // offers something by which receivers measure the channels before they choose
};

// Resource; thread-safe. Threads: "lc-offer" owns the control socket; one computes digests; one for each walk of
// a stream; what the channels start.
class OfferService {
 public:
  // Throws kInvalidArgument or kUnavailable naming the endpoint. What it borrows outlives it.
  // `device`: for versions, and tensors of streams, that lie on devices; null: there are none.
  OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints,
               DeviceBytes* device = nullptr);
  // Over these transports, whatever channels the options name.
  OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints, DeviceBytes* device,
               std::vector<std::unique_ptr<Transport>> transports);
  ~OfferService();
  OfferService(const OfferService&) = delete;
  OfferService& operator=(const OfferService&) = delete;

  // Ends every session; when it returns nothing offered is read any more. Also done by the destructor.
  void Stop();

  std::string endpoint() const;
  // Memory that every channel can hand over; copies of versions belong there.
  MemoryResource& arena();
  // Whether every channel can hand over memory of that device.
  bool carries(const Device& device) const;
  std::uint64_t NextOfferId();

  // The newest version from now on. Receivers may ask for it until it is withdrawn.
  void Offer(std::shared_ptr<OfferedVersion> version);
  // No new session takes it; the ones under way go on, for as long as the options say. Its memory is free once
  // version.WaitReleased says so and Forget was called.
  void Withdraw(const std::shared_ptr<OfferedVersion>& version);
  // Of one that is withdrawn: the sessions under way are refused now.
  void Expire(const std::shared_ptr<OfferedVersion>& version);
  // After a withdrawn version was released: no channel reads its memory any more.
  void Forget(const std::shared_ptr<OfferedVersion>& version);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
