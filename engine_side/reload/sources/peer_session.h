// The session by which a version comes from its publishers, or from a rank of another engine that lends its own. Used
// by peer_source.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine_side/reload/sources/config_check.h"
#include "layercast/receiver_options.h"
#include "layercast/report.h"
#include "src/base/failpoint.h"
#include "src/base/hash/sha256.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/choose/channel_chooser.h"
#include "src/session/deltas/source_copy.h"
#include "src/session/fetch/fetch.h"
#include "src/session/fetch/fetch_sink.h"
#include "src/session/link/kept_peers.h"
#include "src/session/relay/relay.h"
#include "src/tensor/parts/merged_version.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// Which version to ask for, whom to ask, and for which attempt. Value.
struct PeerRequest {
  std::vector<std::string> endpoints;  // the publishers', by rank, or the lender's
  std::string lineage;
  std::optional<std::uint64_t> step;  // empty: the newest
  Digest digest{};                    // set: the version of this digest, from one publisher
  bool lender = false;                // the endpoint is of a lender, whom only this rank asks
  std::uint64_t attempt = 0;
  std::stop_token stop{};                    // once requested, every call soon ends in kCancelled
  bool keeps_source = false;                 // what comes of a snapshot is kept
  std::shared_ptr<const SourceCopy> base{};  // what is kept from before; the other owner is the receiver
};

// Resource; one thread only. Between sessions it keeps what makes the next one cheap: connections to publishers,
// mappings and measurements of channels, publishers' layouts, and the relay. It fills in channel, publishers and rates
// in the report.
class PeerSession {
 public:
  struct Environment {
    const ReceiverOptions& options;
    const Keys& keys;  // that the options name
    const ParallelConfig& parallel;
    WorkerPool& pool;
    MemoryResource& memory;  // for chunks on the host
    ChunkMemory* device;     // for chunks on a device; null if there is none
    FailPoints& failpoints;
    ReloadReport& report;
  };
  // What `environment` refers to must outlive the session. `transports` are the ways to reach peers.
  PeerSession(const Environment& environment, std::vector<std::unique_ptr<Transport>> transports);

  // Connects, and returns what the peers offer as one version. Throws what FetchSession::Open and Merge throw.
  MergedVersion Open(PeerRequest request);
  // Takes over a session that somebody has opened to look at what those peers offer. The request says how to reach it
  // again.
  MergedVersion Adopt(PeerRequest request, std::unique_ptr<FetchSession> session);
  // LetGo closes the session with the peers. Reach opens it again, perhaps much later. It throws kFailedPrecondition
  // if they no longer offer what was opened, tensor by tensor, because plan and scales were made for that. Reach may be
  // called again after it threw.
  void LetGo() { session_.reset(); }
  void Reach();
  // Moves everything that `schedule` lists from the open session into the sink.
  void Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink);
  // What was kept of the version that Fetch has brought; null: nothing.
  std::shared_ptr<const SourceCopy> source() const { return session_ == nullptr ? nullptr : session_->source(); }
  // Ends the session for good: Reach then does nothing. What fetching has cost the publishers is in the report then.
  void Close();
  // Ends the connections that are kept.
  void ForgetPeers() { kept_.Clear(); }

  // What the open session is for.
  const Version& offered() const { return planned_for_.version; }
  bool is_snapshot() const { return session_->mode() == PublishMode::kSnapshot; }
  const std::vector<Manifest>& manifests() const { return session_->manifests(); }
  std::vector<SourceConfig> configs() const;
  // "publisher tcp://...", for errors.
  std::string Peers() const;

  // Apply to sessions that are opened from now on. An empty channel means the fastest one that both ends have.
  void SetChannel(std::string channel) { channel_ = std::move(channel); }
  void SetTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }

 private:
  // What a plan was made for. That is more than the version, which says neither in which order the tensors are, nor who
  // holds which parts of them, nor what the model's configuration is.
  struct PlannedFor {
    Version version;
    Digest layout;
    HeldParts parts;
    PublishMode mode;
    std::vector<std::string> configs;
    Hash forms{};  // of all manifests' forms, where versions have to be signed
    bool operator==(const PlannedFor&) const = default;
  };
  PlannedFor PlannedForOf(const MergedVersion& merged) const;
  MergedVersion Connect(const std::string& lineage, std::optional<std::uint64_t> step);
  MergedVersion Merged();
  FetchMemory Into();
  FetchOptions HowToFetch();
  void DescribeChannel();
  void DescribeFetch();

  const Environment environment_;
  std::string channel_;
  std::chrono::milliseconds timeout_;
  FailPoints relay_failpoints_;
  HostMemory source_memory_;    // of what is kept, which goes before
  std::optional<Relay> relay_;  // empty unless this rank serves on what it takes
  ChannelChooser channels_;
  LayoutsByPublisher layouts_;
  KeptPeers kept_;

  std::optional<PeerRequest> request_;  // empty unless something is open
  Deadline deadline_ = Deadline::After(std::chrono::milliseconds(0));
  std::unique_ptr<FetchSession> session_;
  PlannedFor planned_for_;
};

}  // namespace layercast
