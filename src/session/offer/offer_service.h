// The publishing half of sessions: answers receivers on the control link, and offers versions on every data channel.
// Used by the trainer's Publisher, by relays, and by anything else that holds a version's bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/failpoint.h"
#include "src/base/threads/worker_pool.h"
#include "src/net/keys/keys.h"
#include "src/session/link/device_bytes.h"
#include "src/session/link/offered_version.h"
#include "src/session/schedules/asked_schedules.h"
#include "src/session/traces/session_traces.h"

namespace layercast {

class TakerTally;
class VersionKeeper;

struct OfferServiceOptions {
  std::string endpoint;                              // to bind; port 0 picks a free one
  Keys keys{};                                       // who is heard, and how this end proves itself; none: everybody is
  std::string name;                                  // "publisher", "relay" or "lender": in handshakes and logs
  std::uint64_t stream_window_bytes = 256U << 20;    // shared by the walks that are under way
  std::chrono::milliseconds peer_timeout{5000};      // what receivers use; a lease lasts six times as long
  std::chrono::milliseconds eviction_time{600'000};  // how long the readers of a withdrawn version may still take
  std::size_t max_sessions = 1024;
  std::uint64_t connection_budget = 256U << 20;  // bytes of receivers' messages that wait (ConnectionLimits)
  std::vector<std::string> channels{};           // those that are offered; empty: all that work here, but cuda_ipc
  std::size_t nccl_fleet = 1;                    // how many receivers `nccl` serves together
  VersionKeeper* keeper = nullptr;   // answers those who ask what is kept; outlives the service; null: nobody does
  TakerTally* takers = nullptr;      // notes who takes what; outlives the service; null: nobody wants to know
  SessionTraces::Send send_trace{};  // sends traces of sessions to a collector; empty: nobody does
  bool probe = true;                 // offers bytes by which receivers measure the channels before they choose
};

// Resource; thread-safe. Its threads: "lc-offer", which owns the control socket; one that computes digests; one for
// each walk of a stream; and those that the channels start.
class OfferService {
 public:
  // `device` is for versions, and tensors of streams, that lie on devices; null: there are none. What the service
  // borrows outlives it. Throws kInvalidArgument or kUnavailable, naming the endpoint.
  OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints,
               DeviceBytes* device = nullptr);
  // Offers over these transports, whatever channels the options name.
  OfferService(const OfferServiceOptions& options, WorkerPool& pool, FailPoints& failpoints, DeviceBytes* device,
               std::vector<std::unique_ptr<Transport>> transports);
  ~OfferService();
  OfferService(const OfferService&) = delete;
  OfferService& operator=(const OfferService&) = delete;

  // Ends every session. When it returns, nothing offered is read any more. The destructor does it too.
  void Stop();

  std::string endpoint() const;
  // Memory that every channel can hand over without copying. Copies of versions belong there.
  MemoryResource& arena();
  // Whether every channel can hand over memory of that device.
  bool carries(const Device& device) const;
  std::uint64_t NextOfferId();
  // The chunk digests that receivers will ask for, if they ask of this snapshot what they asked of the last version
  // with its layout (asked_schedules.h).
  DigestsBySchedule DigestsOfAsked(const Digest& layout, const layercast::Offer& next);

  // Offers a version, which is the newest from now on. Receivers may ask for it until it is withdrawn.
  void Offer(std::shared_ptr<OfferedVersion> version);
  // From now on no new session takes the version; those under way go on for at most eviction_time. The version's memory
  // is free once OfferedVersion::WaitReleased says so and Forget was called.
  void Withdraw(const std::shared_ptr<OfferedVersion>& version);
  // Refuses the sessions that still read a withdrawn version.
  void Expire(const std::shared_ptr<OfferedVersion>& version);
  // Call it after a withdrawn version was released. When it returns, no channel reads the version's memory any more.
  void Forget(const std::shared_ptr<OfferedVersion>& version);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
