// The session by which a version comes from its publishers, or from a rank of another engine that lends its own. Used
// by the stager.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine_side/plan/merged_version.h"
#include "layercast/receiver.h"
#include "layercast/report.h"
#include "src/base/failpoint.h"
#include "src/base/worker_pool.h"
#include "src/session/fetch.h"
#include "src/session/relay.h"
#include "src/transport/channel.h"

namespace layercast {

// Whom to ask for which version, and on whose behalf. Value.
struct PeerRequest {
  std::vector<std::string> endpoints;  // of publishers by rank, or the one of a lender
  std::string lineage;
  std::optional<std::uint64_t> step;  // empty: the newest
  bool lender = false;                // each rank of an engine has a lender of its own, and asks it alone
  std::uint64_t attempt = 0;
  std::stop_token stop{};  // once it is asked for, every call ends in kCancelled soon
};

// Resource; one thread only. Between sessions it keeps what makes the next one cheap: mappings and measurements of
// channels, publishers' layouts, the relay. Fills in the report's channel, publishers and rates.
class PeerSession {
 public:
  struct Environment {
    const ReceiverOptions& options;
    const ParallelConfig& parallel;
    WorkerPool& pool;
    MemoryResource& memory;  // for chunks on the host
    ChunkMemory* device;     // for chunks on a device; null: there is none
    FailPoints& failpoints;
    ReloadReport& report;
  };
  // What `environment` refers to outlives the session. `transports`: by which peers are reached.
  PeerSession(const Environment& environment, std::vector<std::unique_ptr<Transport>> transports);

  // Connects, and returns what the peers offer as one version. Throws as FetchSession::Open does, and what Merge finds.
  MergedVersion Open(PeerRequest request);
  // Lets go of the peers until Reach, which may come much later. It throws kFailedPrecondition where they do not offer
  // what was opened any more, tensor by tensor: a plan and scales were made for that. It may be tried again.
  void Release() { session_.reset(); }
  void Reach();
  // Moves the schedule of the open session into the sink.
  void Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink);
  void Close();

  // Of the open session.
  const Version& offered() const { return offered_.version; }
  bool is_snapshot() const { return session_->mode() == PublishMode::kSnapshot; }
  const std::vector<Manifest>& manifests() const { return session_->manifests(); }
  // "publisher tcp://...", for errors.
  std::string Peers() const;

  // For sessions opened from now on. An empty channel: the fastest that both ends have.
  void SetChannel(std::string channel) { channel_ = std::move(channel); }
  void SetTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  // What a plan was made for: the order of the tensors and who holds which parts of them, too. The version says neither.
  struct Offer {
    Version version;
    Digest layout;
    HeldParts parts;
    PublishMode mode;
    bool operator==(const Offer&) const = default;
  };
  Offer OfferOf(const MergedVersion& merged) const;
  MergedVersion Connect(const std::string& lineage, std::optional<std::uint64_t> step);
  FetchOptions HowToFetch();
  void DescribeChannel();
  void DescribeFetch();

  const Environment environment_;
  std::string channel_;
  std::chrono::milliseconds timeout_;
  FailPoints relay_failpoints_;
  std::optional<Relay> relay_;  // where this rank serves on what it takes
  ChannelChooser channels_;
  LayoutsByPublisher layouts_;

  std::optional<PeerRequest> request_;  // of what is opened
  Deadline deadline_ = Deadline::After(std::chrono::milliseconds(0));
  std::unique_ptr<FetchSession> session_;
  Offer offered_;
};

}  // namespace layercast
