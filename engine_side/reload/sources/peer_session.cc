#include "engine_side/reload/sources/peer_session.h"

#include <utility>

#include "engine_side/reload/pipeline/stage_clock.h"
#include "layercast/error.h"
#include "src/base/log.h"
#include "src/session/fetch/slow_channel.h"
#include "src/transport/all/transports.h"

namespace layercast {
namespace {

constexpr const char* kUnnamedRun =
    "no publisher names its run: parts that two runs have published under one name would not be told apart";

}  // namespace

PeerSession::PeerSession(const Environment& environment, std::vector<std::unique_ptr<Transport>> transports)
    : environment_(environment),
      channel_(environment.options.channel),
      timeout_(environment.options.timeout),
      relay_failpoints_(FailPoints::FromEnvironment("relay" + std::to_string(environment.parallel.engine_rank()))),
      channels_(std::move(transports)) {
  const ReceiverOptions& options = environment.options;
  if (!channel_.empty()) (void)TransportsNamed({&channel_, 1});  // throws for an unknown channel
  if (options.relay.empty()) return;
  if (options.keep_source) {
    throw Error(ErrorCode::kInvalidArgument,
                "a rank that relays, at " + options.relay + ", keeps no source beside: expected one of the two");
  }
  relay_.emplace(RelayOptions{.endpoint = options.relay,
                              .keys = environment_.keys,
                              .peer_timeout = options.peer_timeout,
                              .takers = options.relay_takers},
                 environment.pool, relay_failpoints_);
}

MergedVersion PeerSession::Open(PeerRequest request) {
  request_ = std::move(request);
  MergedVersion merged = Connect(request_->lineage, request_->step);
  planned_for_ = PlannedForOf(merged);
  return merged;
}

MergedVersion PeerSession::Adopt(PeerRequest request, std::unique_ptr<FetchSession> session) {
  request_ = std::move(request);
  deadline_ = Deadline::After(timeout_);
  session_ = std::move(session);
  session_->TakeInto(Into());
  MergedVersion merged = Merged();
  planned_for_ = PlannedForOf(merged);
  return merged;
}

void PeerSession::Reach() {
  if (session_ != nullptr || !request_) return;
  try {
    const PlannedFor found = PlannedForOf(Connect(planned_for_.version.lineage, planned_for_.version.step));
    if (found == planned_for_) return;
    const bool same_version = found.version == planned_for_.version;
    throw Error(ErrorCode::kFailedPrecondition,
                Peers() + ": expected to find " + planned_for_.version.ToString() + " again, got " +
                    (same_version ? "it with its tensors in another order, or cut in other parts, or with another "
                                    "configuration: reload it anew"
                                  : found.version.ToString()));
  } catch (...) {
    session_.reset();  // otherwise the next Reach would accept what this one found
    throw;
  }
}

PeerSession::PlannedFor PeerSession::PlannedForOf(const MergedVersion& merged) const {
  Hash forms{};
  if (environment_.keys.trusted() != nullptr) {  // a digest would tell accidents alone
    Hasher all;
    for (const Manifest& manifest : session_->manifests()) all.Update(manifest.Encode());
    forms = all.Finish();
  }
  return {merged.manifest.version(),
          merged.manifest.layout_digest(),
          merged.parts,
          session_->mode(),
          session_->configs(),
          forms};
}

void PeerSession::Close() {
  if (session_ != nullptr) {
    session_->AwaitCosts();
    environment_.report.publishers = session_->stats().publishers;
  }
  session_.reset();
  request_.reset();
}

MergedVersion PeerSession::Connect(const std::string& lineage, std::optional<std::uint64_t> step) {
  const ParallelConfig& parallel = environment_.parallel;
  const ReceiverIdentity self{.engine = environment_.options.engine,
                              .attempt = request_->attempt,
                              .rank = parallel.engine_rank(),
                              .ranks = request_->lender ? 1 : parallel.engine_size()};
  deadline_ = Deadline::After(timeout_);
  const StageClock::Scope timing(
      {&environment_.report.stage_ms["connect"], LaneOf(environment_.options.trace, "connect", TraceKind::kStage)});
  session_ =
      FetchSession::Open(request_->endpoints, self, lineage, step, HowToFetch(), environment_.failpoints, deadline_);
  return Merged();
}

MergedVersion PeerSession::Merged() {
  DescribeChannel();
  return Merge(session_->manifests(), session_->endpoints());
}

void PeerSession::Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink) {
  try {
    session_->Fetch(schedule, amax_requests, sink, deadline_);
  } catch (const Error&) {
    DescribeFetch();
    throw;
  }
  DescribeFetch();
  std::string& warning = environment_.report.channel_warning;
  warning = SlowChannelWarning(session_->stats(), session_->mode()).value_or("");
  if (!warning.empty()) log::warn("{}: {}", Peers(), warning);
}

std::string PeerSession::Peers() const {
  std::string all;
  for (const std::string& endpoint : request_->endpoints) all += (all.empty() ? "" : ", ") + endpoint;
  return (request_->lender ? "engine at " : "publisher ") + all;
}

std::vector<SourceConfig> PeerSession::configs() const {
  const std::vector<std::string> endpoints = session_->endpoints();
  std::vector<SourceConfig> configs;
  for (std::string& text : session_->configs()) {
    configs.push_back({(request_->lender ? "engine at " : "publisher ") + endpoints[configs.size()], std::move(text)});
  }
  return configs;
}

FetchMemory PeerSession::Into() {
  return {.pool = &environment_.pool,
          .memory = &environment_.memory,
          .device = environment_.device,
          .source = request_->keeps_source ? &source_memory_ : nullptr};
}

FetchOptions PeerSession::HowToFetch() {
  FetchOptions fetch;
  fetch.channels = &channels_;
  fetch.layouts = &layouts_;
  if (request_->lender) {
    fetch.role = "lender";
  } else {
    fetch.kept = &kept_;
  }
  fetch.keys = environment_.keys;
  fetch.may_be_unsigned = request_->lender && environment_.keys.may_be_unsigned();
  fetch.channel = channel_;
  fetch.digest = request_->digest;
  fetch.into = Into();
  fetch.base = request_->base;
  fetch.delta = environment_.options.delta;
  fetch.relay = relay_ ? &*relay_ : nullptr;
  fetch.peer_timeout = environment_.options.peer_timeout;
  fetch.stop = request_->stop;
  fetch.trace = environment_.options.trace;
  return fetch;
}

void PeerSession::DescribeChannel() {
  const ChannelUse channel = session_->stats().channel;
  ReloadReport& report = environment_.report;
  report.channel = channel.name;
  report.channel_lane = channel.lane;
  report.channel_reason = channel.reason;
  report.probed_gb_per_s = channel.probed_gb_per_s;
  report.publishers = session_->stats().publishers;
  const bool unchecked = report.publishers.size() > 1 && session_->stats().run.empty();
  report.run_warning = unchecked ? kUnnamedRun : "";
}

void PeerSession::DescribeFetch() {
  const FetchStats stats = session_->stats();
  ReloadReport& report = environment_.report;
  report.stage_ms["receive"] = stats.receive_seconds * 1e3;
  report.stage_ms["verify"] = stats.verify_seconds * 1e3;
  report.publishers = stats.publishers;
  report.gb_per_s = stats.gb_per_s();
  report.delta = stats.delta;
}

}  // namespace layercast
